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

from collections.abc import Mapping

from shardpass.canon.axes import AxisRef
from shardpass.canon.mesh import MeshShape
from shardpass.canon.mlir_string import unquote
from shardpass.canon.scanner import Scanner
from shardpass.canon.shared_parser import AxisReader
from shardpass.canon.tensor_sharding import TensorSharding
from shardpass.diagnostics import did_you_mean


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
    axes = _axes(scanner)
    dims = axes.dims()
    lists: dict[str, tuple[AxisRef, ...]] = {}
    reduction: str | None = None
    while scanner.accept(","):
        name = _list_name(scanner, lists)
        scanner.expect("=", name)
        if name == "unreduced":
            reduction = axes.reduction()
        lists[name] = axes.refs()
    length = scanner.offset - start
    scanner.expect(">")
    scanner.expect_end()
    replicated, unreduced = lists.get("replicated", ()), lists.get("unreduced", ())
    with scanner.placing(start, length):
        return TensorSharding(mesh, dims, replicated, unreduced, reduction)


def _axes(scanner: Scanner) -> AxisReader:
    return AxisReader(scanner, _axis_name, has_priorities=True)


def _mesh(scanner: Scanner) -> MeshShape:
    scanner.skip_space()
    start = scanner.offset
    scanner.expect("<")
    axes = _axes(scanner).mesh_axes()
    device_ids: tuple[int, ...] | None = None
    if scanner.accept(","):
        scanner.expect("device_ids")
        scanner.expect("=", "device_ids")
        scanner.expect("[")
        device_ids = tuple(scanner.integers("a device id"))
        scanner.expect("]")
    scanner.expect(">")
    with scanner.placing(start):
        return MeshShape(axes, device_ids)


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


def _list_name(scanner: Scanner, read: Mapping[str, object]) -> str:
    scanner.skip_space()
    start = scanner.offset
    name = scanner.word()
    left = [known for known in ("replicated", "unreduced") if known not in read]
    if name not in left:
        scanner.offset = start
        scanner.unexpected(" or ".join(left) or '">"')
    return name


def _axis_name(scanner: Scanner) -> str:
    return _quoted(scanner, "an axis name in double quotes")


def _quoted(scanner: Scanner, what: str) -> str:
    scanner.skip_space()
    start = scanner.offset
    text = unquote(scanner.quoted(what, '"'))
    if text is None:
        scanner.fail("syntax", f"{what} has an escape that is not MLIR's", offset=start)
    return text
