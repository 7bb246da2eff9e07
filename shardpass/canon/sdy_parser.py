"""The parser of Shardy's text for meshes and shardings; the values print themselves.

The grammar of the ``sdy`` attributes of jaxlib 0.10 and 0.12::

    mesh     ::= ('#sdy.mesh' | 'mesh')? '<' '[' (axis (',' axis)*)? ']'
                 (',' 'device_ids' '=' '[' integers ']')? '>'
    axis     ::= string '=' integer
    sharding ::= '#sdy.sharding'? '<' ('@' name | mesh) ',' '[' (dim (',' dim)*)? ']'
                 (',' 'replicated' '=' '{' refs '}' | ',' 'unreduced' '=' kind? '{' refs '}')* '>'
    dim      ::= '{' (refs (',' '?')? | '?')? '}' ('p' integer)?
    ref      ::= string (':' '(' integer ')' integer)?
    kind     ::= 'sum' | 'max' | 'min'                                     (jaxlib 0.12)

White space may stand between any two of these; comments may not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shardpass.canon.axes import AxisRef, DimSharding
from shardpass.canon.mesh import MeshShape
from shardpass.canon.mlir_string import unquote
from shardpass.canon.scanner import Scanner
from shardpass.canon.tensor_sharding import REDUCTIONS, TensorSharding
from shardpass.diagnostics import Excerpt, ShardingError, did_you_mean

_PRIORITY = re.compile(r"p(0|[1-9][0-9]*)")


def parse_mesh(text: str) -> MeshShape:
    """The mesh that ``text`` says; see :meth:`MeshShape.parse`."""
    scanner = Scanner(text)
    if not scanner.accept("#sdy.mesh"):
        scanner.accept("mesh")
    mesh = _mesh(scanner)
    scanner.expect_end()
    return mesh


def parse_tensor_sharding(text: str, meshes: Mapping[str, MeshShape]) -> TensorSharding:
    """The sharding that ``text`` says; see :meth:`TensorSharding.parse`."""
    scanner = Scanner(text)
    scanner.accept("#sdy.sharding")
    scanner.expect("<")
    mesh = _mesh_or_reference(scanner, meshes)
    scanner.expect(",", "the mesh")
    scanner.skip_space()
    start = scanner.offset
    dims = _dims(scanner)
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    reduction: str | None = None
    seen: set[str] = set()
    while scanner.accept(","):
        name = scanner.word()
        if name in seen or name not in ("replicated", "unreduced"):
            scanner.offset -= len(name)
            wanted = [known for known in ("replicated", "unreduced") if known not in seen]
            scanner.unexpected(" or ".join(f'"{known}"' for known in wanted) or '">"')
        seen.add(name)
        scanner.expect("=", name)
        if name == "replicated":
            replicated = _braced_axes(scanner)
        else:
            reduction = _reduction(scanner)
            unreduced = _braced_axes(scanner)
    end = scanner.offset
    scanner.expect(">")
    scanner.expect_end()
    try:
        return TensorSharding(mesh, dims, replicated, unreduced, reduction)
    except ShardingError as error:
        raise _placed(error, text, start, end - start) from None


def _mesh(scanner: Scanner) -> MeshShape:
    scanner.skip_space()
    start = scanner.offset
    scanner.expect("<")
    scanner.expect("[")
    axes: list[tuple[str, int]] = []
    while not scanner.accept("]"):
        if axes:
            scanner.expect(",", "an axis")
        name = _axis_name(scanner)
        scanner.expect("=", "an axis name")
        axes.append((name, scanner.integer("an axis size", least=1)))
    device_ids: tuple[int, ...] | None = None
    if scanner.accept(","):
        if scanner.word() != "device_ids":
            scanner.unexpected('"device_ids"')
        scanner.expect("=", "device_ids")
        scanner.expect("[")
        device_ids = tuple(scanner.integers("a device id"))
        scanner.expect("]")
    scanner.expect(">")
    try:
        return MeshShape(tuple(axes), device_ids)
    except ShardingError as error:
        raise _placed(error, scanner.text, start, scanner.offset - start) from None


def _mesh_or_reference(scanner: Scanner, meshes: Mapping[str, MeshShape]) -> MeshShape:
    if scanner.accept("mesh"):
        return _mesh(scanner)
    scanner.expect("@")
    start = scanner.offset
    name = _quoted(scanner, "a mesh name") if scanner.sees('"') else scanner.word()
    if not name:
        scanner.unexpected("a mesh name")
    if name not in meshes:
        known = ", ".join(f"@{mesh}" for mesh in meshes) or "no mesh"
        scanner.fail(
            "syntax",
            f"unknown mesh @{name}; the module has {known}",
            offset=start,
            length=scanner.offset - start,
            help=did_you_mean(name, meshes),
        )
    return meshes[name]


def _dims(scanner: Scanner) -> tuple[DimSharding, ...]:
    scanner.expect("[", "the mesh")
    dims: list[DimSharding] = []
    while not scanner.accept("]"):
        if dims:
            scanner.expect(",", "a dimension")
        dims.append(_dim(scanner))
    return tuple(dims)


def _dim(scanner: Scanner) -> DimSharding:
    scanner.skip_space()
    start = scanner.offset
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
            axes.append(_axis(scanner))
    priority = _priority(scanner)
    try:
        return DimSharding(tuple(axes), is_open, priority)
    except ShardingError as error:
        raise _placed(error, scanner.text, start, scanner.offset - start) from None


def _priority(scanner: Scanner) -> int | None:
    scanner.skip_space()
    start = scanner.offset
    word = scanner.word()
    if not word:
        return None
    scanner.offset = start
    match = _PRIORITY.fullmatch(word)
    if not match:
        scanner.fail(
            "syntax", f'expected a priority such as "p1", found "{word}"', length=len(word)
        )
    scanner.offset += 1
    return scanner.integer("a priority")


def _braced_axes(scanner: Scanner) -> tuple[AxisRef, ...]:
    scanner.expect("{")
    axes = [_axis(scanner)]
    while scanner.accept(","):
        axes.append(_axis(scanner))
    scanner.expect("}")
    return tuple(axes)


def _reduction(scanner: Scanner) -> str | None:
    scanner.skip_space()
    start = scanner.offset
    word = scanner.word()
    if word and word not in REDUCTIONS:
        scanner.fail(
            "bad-reduction",
            f'"{word}" is none of {", ".join(REDUCTIONS)}',
            offset=start,
            length=len(word),
        )
    return word or None


def _axis(scanner: Scanner) -> AxisRef:
    scanner.skip_space()
    start = scanner.offset
    name = _axis_name(scanner)
    if not scanner.accept(":"):
        return AxisRef(name)
    scanner.expect("(")
    pre_size = scanner.integer("a pre-size")
    scanner.expect(")")
    size = scanner.integer("a sub-axis size")
    try:
        return AxisRef(name, pre_size, size)
    except ShardingError as error:
        raise _placed(error, scanner.text, start, scanner.offset - start) from None


def _axis_name(scanner: Scanner) -> str:
    return _quoted(scanner, "an axis name in double quotes")


def _quoted(scanner: Scanner, what: str) -> str:
    scanner.skip_space()
    start = scanner.offset
    text = unquote(scanner.quoted(what, '"'))
    if text is None:
        scanner.fail("syntax", f"{what} has an escape that is not MLIR's", offset=start)
    return text


def _placed(error: ShardingError, text: str, offset: int, length: int) -> ShardingError:
    found = error.diagnostic
    return ShardingError(
        found.slug,
        found.message,
        help=found.help,
        notes=found.notes,
        excerpt=found.excerpt or Excerpt.at(text, offset, length),
    )
