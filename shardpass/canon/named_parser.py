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

from shardpass.canon.axes import AxisRef
from shardpass.canon.mesh import MeshShape
from shardpass.canon.metadata import Metadata
from shardpass.canon.metadata_parser import parse_metadata
from shardpass.canon.named_hlo import NamedHlo
from shardpass.canon.scanner import Scanner
from shardpass.canon.shared_parser import AxisReader, read_order
from shardpass.canon.tensor_sharding import TensorSharding
from shardpass.canon.tile_assignment import TileAssignment

_SINGLE: Final = ("single_device", "maximal_mesh")
NAMED_STARTS: Final = ("mesh", *_SINGLE)
_WHOLE: Final = ("replicated", "manual", "unreduced")


def parse_named(scanner: Scanner) -> tuple[NamedHlo, tuple[Metadata, ...]]:
    """Read what follows the opening brace of a named sharding, up to and with the closing one."""
    scanner.skip_space()
    with scanner.placing(scanner.offset):
        word = scanner.word()
        if word in _SINGLE:
            scanner.expect("[", word)
            scanner.expect("device_id=")
            mesh = MeshShape.maximal(scanner.integer("a device id"))
            scanner.expect("]")
            return NamedHlo(TensorSharding(mesh, ()), single_device=word), _Tail(scanner).metadata
        axes = AxisReader(scanner, _name, has_priorities=False)
        mesh, order = _mesh(scanner, axes)
        scanner.expect(",", "the mesh")
        read = _with_dims if scanner.sees("[") else _with_word
        return read(scanner, axes, mesh, order)


def _with_dims(
    scanner: Scanner, axes: AxisReader, mesh: MeshShape, order: TileAssignment | None
) -> tuple[NamedHlo, tuple[Metadata, ...]]:
    """Read ``[{'x'}, {}], manual={'y'}}``."""
    dims = axes.dims()
    tail = _Tail(scanner, axes)
    lists = tail.lists
    replicated, unreduced = lists.get("replicated", ()), lists.get("unreduced", ())
    sharding = TensorSharding(mesh, dims, replicated, unreduced, tail.reduction)
    return NamedHlo(sharding, lists.get("manual", ()), order), tail.metadata


def _with_word(
    scanner: Scanner, axes: AxisReader, mesh: MeshShape, order: TileAssignment | None
) -> tuple[NamedHlo, tuple[Metadata, ...]]:
    """Read ``replicated}``, ``manual}`` or ``unreduced=max{'x'}}``: a value of any rank."""
    scanner.skip_space()
    start = scanner.offset
    word = scanner.word()
    if word not in _WHOLE:
        scanner.offset = start
        scanner.unexpected('"[", replicated, manual or unreduced')
    every_axis = tuple(AxisRef(name) for name in mesh.names)
    manual, unreduced, reduction = (), (), None
    if word == "manual":
        if not every_axis:
            scanner.fail("bad-mesh", "manual on a mesh without axes", offset=start, length=6)
        manual = every_axis
    elif word == "unreduced":
        if scanner.accept("="):
            reduction = axes.reduction() or scanner.unexpected("sum, max or min")
        unreduced = axes.refs() if scanner.sees("{") else every_axis
    sharding = TensorSharding(mesh, (), (), unreduced, reduction if unreduced else None)
    return NamedHlo(sharding, manual, order), _Tail(scanner).metadata


class _Tail:
    """What stands behind commas at the end, up to and with the closing brace.

    Lists of axes are read with ``axes``, and are not allowed without.
    """

    def __init__(self, scanner: Scanner, axes: AxisReader | None = None) -> None:
        self.lists: dict[str, tuple[AxisRef, ...]] = {}
        self.reduction: str | None = None
        self.metadata: tuple[Metadata, ...] = ()
        allowed = [*_WHOLE, "metadata"] if axes else ["metadata"]
        while not scanner.accept("}"):
            scanner.expect(",", "what stands before")
            scanner.skip_space()
            start = scanner.offset
            name = scanner.word()
            if name not in allowed:
                scanner.offset = start
                scanner.unexpected(", ".join(f"{known}=" for known in allowed) or '"}"')
            allowed.remove(name)
            scanner.expect("=", name)
            if name == "metadata" or axes is None:
                self.metadata = parse_metadata(scanner)
                continue
            if name == "unreduced":
                self.reduction = axes.reduction()
            self.lists[name] = axes.refs()


def _mesh(scanner: Scanner, axes: AxisReader) -> tuple[MeshShape, TileAssignment | None]:
    """Read ``['x'=2,'y'=4], device_ids=([4,2]T(1,0))``; the order only where it is not counting."""
    mesh = MeshShape(axes.mesh_axes())
    behind = scanner.offset
    if not (scanner.accept(",") and scanner.accept("device_ids=")):
        scanner.offset = behind
        return mesh, None
    scanner.expect("(", "device_ids=")
    scanner.skip_space()
    start = scanner.offset
    if scanner.sees("["):
        order = TileAssignment.iota(mesh.sizes or (1,), *read_order(scanner))
        scanner.expect(")")
        return mesh, order if len(order.reshape_dims) > 1 else None
    ids = scanner.integers("a device id")
    permuted = MeshShape(mesh.axes, tuple(ids))
    if permuted.device_ids is None:
        message = f"device_ids that only count to {len(ids) - 1} are left out"
        scanner.fail("bad-mesh", message, offset=start, length=scanner.offset - start)
    scanner.expect(")")
    return permuted, None


def _name(scanner: Scanner) -> str:
    scanner.skip_space()
    start = scanner.offset
    name = scanner.quoted("an axis name in quotes", "'\"")
    if "\\" in name or "'" in name:
        message = "an axis name with a quote or an escape cannot be printed"
        scanner.fail("syntax", message, offset=start)
    return name
