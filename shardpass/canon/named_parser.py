"""The parser of XLA's named shardings (V3).

The grammar, as jaxlib 0.12 reads it; 0.10 knows ``maximal_mesh`` instead of ``single_device``, and
no kinds of reduction::

    named ::= ('single_device' | 'maximal_mesh') '[' 'device_id=' integer ']' (',' metadata)?
            | 'mesh' '[' (name '=' integer (',' name '=' integer)*)? ']' (',' 'device_ids=' ids)?
              ',' ('replicated' | 'manual' | whole | dims (',' axes)*)
              (',' metadata)?
    whole ::= 'unreduced' ('=' kind)? ('{' ref (',' ref)* '}')?
    ids   ::= '(' integers ')' | '(' '[' integers ']' ('T' '(' integers ')')? ')'
    dims  ::= '[' (dim (',' dim)*)? ']'
    dim   ::= '{' '}' | '{' '?' '}' | '{' ref (',' ref)* (',' '?')? '}'
    axes  ::= ('replicated=' | 'manual=' | 'unreduced=' kind?) '{' ref (',' ref)* '}'
    ref   ::= name (':' '(' integer ')' integer)?
    kind  ::= 'sum' | 'max' | 'min'

Names stand in single or double quotes.
"""

from __future__ import annotations

from typing import Final

from shardpass.canon.axes import AxisRef, DimSharding
from shardpass.canon.mesh import MeshShape
from shardpass.canon.metadata import Metadata
from shardpass.canon.metadata_parser import parse_metadata
from shardpass.canon.named_hlo import NamedHlo
from shardpass.canon.scanner import Scanner
from shardpass.canon.tensor_sharding import REDUCTIONS, TensorSharding
from shardpass.canon.tile_assignment import TileAssignment
from shardpass.diagnostics import Excerpt, ShardingError

_SINGLE: Final = ("single_device", "maximal_mesh")
NAMED_STARTS: Final = ("mesh", *_SINGLE)
_WHOLE: Final = ("replicated", "manual", "unreduced")


def parse_named(scanner: Scanner) -> tuple[NamedHlo, tuple[Metadata, ...]]:
    """Read what follows the opening brace of a named sharding, up to and with the closing one."""
    scanner.skip_space()
    start = scanner.offset
    try:
        return _named(scanner)
    except ShardingError as error:
        found = error.diagnostic
        raise ShardingError(
            found.slug,
            found.message,
            help=found.help,
            notes=found.notes,
            excerpt=found.excerpt or Excerpt.at(scanner.text, start, scanner.offset - start),
        ) from None


def _named(scanner: Scanner) -> tuple[NamedHlo, tuple[Metadata, ...]]:
    word = scanner.word()
    if word in _SINGLE:
        scanner.expect("[", word)
        scanner.expect("device_id=")
        mesh = MeshShape.maximal(scanner.integer("a device id"))
        scanner.expect("]")
        metadata = _last_metadata(scanner)
        return NamedHlo(TensorSharding(mesh, ()), single_device=word), metadata
    mesh, order = _mesh(scanner)
    scanner.expect(",", "the mesh")
    if scanner.sees("["):
        return _axes(scanner, mesh, order)
    scanner.skip_space()
    start = scanner.offset
    whole = scanner.word()
    if whole not in _WHOLE:
        scanner.offset = start
        scanner.unexpected('"[", replicated, manual or unreduced')
    every_axis = tuple(AxisRef(name) for name in mesh.names)
    if whole == "manual" and not every_axis:
        scanner.fail("bad-mesh", "manual on a mesh without axes", offset=start, length=6)
    unreduced, reduction = (), None
    if whole == "unreduced":
        reduction = _reduction(scanner) if scanner.accept("=") else None
        unreduced = _refs(scanner) if scanner.sees("{") else every_axis
    metadata = _last_metadata(scanner)
    sharding = TensorSharding(mesh, (), (), unreduced, reduction if unreduced else None)
    return NamedHlo(sharding, every_axis if whole == "manual" else (), order), metadata


def _axes(
    scanner: Scanner, mesh: MeshShape, order: TileAssignment | None
) -> tuple[NamedHlo, tuple[Metadata, ...]]:
    dims = _dims(scanner)
    lists: dict[str, tuple[AxisRef, ...]] = {}
    metadata: tuple[Metadata, ...] | None = None
    reduction: str | None = None
    while not scanner.accept("}"):
        scanner.expect(",", "the dimensions" if not lists else "a list of axes")
        scanner.skip_space()
        start = scanner.offset
        name = scanner.word()
        if name == "metadata" and metadata is None:
            scanner.expect("=", name)
            metadata = parse_metadata(scanner)
            continue
        if name not in _WHOLE or name in lists:
            scanner.offset = start
            left = [known for known in _WHOLE if known not in lists]
            scanner.unexpected(", ".join(f"{known}=" for known in left) or '"}"')
        scanner.expect("=", name)
        if name == "unreduced" and not scanner.sees("{"):
            reduction = _reduction(scanner)
        lists[name] = _refs(scanner)
    sharding = TensorSharding(
        mesh, dims, lists.get("replicated", ()), lists.get("unreduced", ()), reduction
    )
    return NamedHlo(sharding, lists.get("manual", ()), order), metadata or ()


def _mesh(scanner: Scanner) -> tuple[MeshShape, TileAssignment | None]:
    scanner.expect("[", "mesh")
    axes: list[tuple[str, int]] = []
    while not scanner.accept("]"):
        if axes:
            scanner.expect(",", "an axis")
        name = _name(scanner)
        scanner.expect("=", "an axis name")
        axes.append((name, scanner.integer("an axis size", least=1)))
    mesh = MeshShape(tuple(axes))
    start = scanner.offset
    if not (scanner.accept(",") and scanner.accept("device_ids=")):
        scanner.offset = start
        return mesh, None
    scanner.expect("(", "device_ids=")
    scanner.skip_space()
    ids_start = scanner.offset
    if scanner.accept("["):
        order = _order(scanner, mesh)
        scanner.expect(")")
        return mesh, order if len(order.reshape_dims) > 1 else None
    ids = scanner.integers("a device id")
    permuted = MeshShape(mesh.axes, tuple(ids))
    if permuted.device_ids is None:
        scanner.fail(
            "bad-mesh",
            f"device_ids that only count to {len(ids) - 1} are left out",
            offset=ids_start,
            length=scanner.offset - ids_start,
        )
    scanner.expect(")")
    return permuted, None


def _order(scanner: Scanner, mesh: MeshShape) -> TileAssignment:
    reshape_dims = scanner.integers("a reshape size")
    scanner.expect("]")
    perm: list[int] = []
    if len(reshape_dims) > 1:
        scanner.expect("T", "more than one reshape size")
        scanner.expect("(")
        perm = scanner.integers("a dimension")
        scanner.expect(")")
    return TileAssignment.iota(mesh.sizes or (1,), reshape_dims, perm)


def _dims(scanner: Scanner) -> tuple[DimSharding, ...]:
    scanner.expect("[")
    dims: list[DimSharding] = []
    while not scanner.accept("]"):
        if dims:
            scanner.expect(",", "a dimension")
        dims.append(_dim(scanner))
    return tuple(dims)


def _dim(scanner: Scanner) -> DimSharding:
    scanner.expect("{")
    axes: list[AxisRef] = []
    is_open = False
    while not scanner.accept("}"):
        if is_open:
            scanner.unexpected('"}" after "?"')
        if axes:
            scanner.expect(",", "an axis")
        if scanner.accept("?"):
            is_open = True
        else:
            axes.append(_ref(scanner))
    return DimSharding(tuple(axes), is_open)


def _refs(scanner: Scanner) -> tuple[AxisRef, ...]:
    scanner.expect("{")
    refs = [_ref(scanner)]
    while scanner.accept(","):
        refs.append(_ref(scanner))
    scanner.expect("}")
    return tuple(refs)


def _ref(scanner: Scanner) -> AxisRef:
    name = _name(scanner)
    if not scanner.accept(":"):
        return AxisRef(name)
    scanner.expect("(")
    pre_size = scanner.integer("a pre-size")
    scanner.expect(")")
    return AxisRef(name, pre_size, scanner.integer("a sub-axis size"))


def _name(scanner: Scanner) -> str:
    scanner.skip_space()
    start = scanner.offset
    name = scanner.quoted("an axis name in quotes", "'\"")
    if "\\" in name or "'" in name:
        scanner.fail(
            "syntax", "an axis name with a quote or an escape cannot be printed", offset=start
        )
    return name


def _reduction(scanner: Scanner) -> str:
    scanner.skip_space()
    start = scanner.offset
    word = scanner.word()
    if word not in REDUCTIONS:
        scanner.offset = start
        scanner.unexpected("sum, max or min")
    return word


def _last_metadata(scanner: Scanner) -> tuple[Metadata, ...]:
    metadata: tuple[Metadata, ...] = ()
    if scanner.accept(","):
        scanner.expect("metadata=")
        metadata = parse_metadata(scanner)
    scanner.expect("}")
    return metadata
