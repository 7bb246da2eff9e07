"""``shardpass.visualize``: everything that it takes, what it gives, and what it refuses."""

import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from xml.etree import ElementTree

import jax
import numpy as np
import pytest
from jax.extend.sharding import GSPMDSharding as JaxGspmdSharding
from jax.sharding import AxisType

import shardpass
from shardpass.canon import HloSharding, MeshShape, TensorSharding
from shardpass.diagnostics import ShardingError
from shardpass.report import Visualization
from shardpass.report import visualize as visualize_of_the_layer
from shardpass.sharding import (
    Chunked,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    NoSharding,
    P,
    PmapSharding,
    PositionalSharding,
    ShardedAxis,
    ShardingSpec,
    SingleDeviceSharding,
    Unstacked,
    from_json,
    to_json,
)

visualize = shardpass.visualize
MESH = Mesh.of(x=2, y=4)
BOUND = MESH.bind()
EXPLICIT = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"), AxisType.Explicit)
#: What [{"y"}, {"x"}] puts where.
CELLS = {(row, column): ((4 * column + row,),) for row in range(4) for column in range(2)}


def cells(shown: Visualization) -> dict[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    return {block: shown.grid.devices_of(block) for block in shown.grid.blocks()}


def headline(shown: Visualization) -> str:
    return shown.to_text(200).splitlines()[0]


def test_it_is_a_name_of_the_package() -> None:
    assert visualize is visualize_of_the_layer


# What it takes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sharding",
    [
        NamedSharding(BOUND, P("y", "x")),
        NamedSharding(MESH, P("y", "x")),
        jax.sharding.NamedSharding(BOUND.to_jax(), jax.sharding.PartitionSpec("y", "x")),
        jax.sharding.NamedSharding(MESH.to_jax(), jax.sharding.PartitionSpec("y", "x")),
        TensorSharding.build(MeshShape.of(x=2, y=4), [["y"], ["x"]]),
        '#sdy.sharding<mesh<["x"=2, "y"=4]>, [{"y"}, {"x"}]>',
    ],
)
def test_shardings_with_names(sharding: object) -> None:
    shown = visualize(sharding, (8, 6))
    assert cells(shown) == CELLS
    assert headline(shown) == '[8,6] [{"y"}, {"x"}] on mesh x=2, y=4'


@pytest.mark.parametrize(
    "sharding",
    [HloSharding.parse("{devices=[4,2]<=[2,4]T(1,0)}"), "{devices=[4,2]<=[2,4]T(1,0)}"],
)
def test_tiles(sharding: object) -> None:
    shown = visualize(sharding, (8, 6))
    assert cells(shown) == CELLS
    assert headline(shown) == "[8,6] {devices=[4,2]<=[2,4]T(1,0)}"


@pytest.mark.parametrize("make", [GSPMDSharding, JaxGspmdSharding])
def test_gspmd_shardings_on_devices_in_another_order(make: type) -> None:
    named = jax.sharding.NamedSharding(BOUND.to_jax(), jax.sharding.PartitionSpec("y", "x"))
    sharding = make(jax.devices()[::-1], named._to_xla_hlo_sharding(2))
    shown = visualize(sharding, (8, 6))
    assert headline(shown) == "[8,6] {devices=[4,2]<=[2,4]T(1,0)}"
    assert cells(shown) == {
        block: tuple(tuple(7 - device for device in part) for part in parts)
        for block, parts in CELLS.items()
    }


def test_positional_shardings() -> None:
    sharding = PositionalSharding(jax.devices()).reshape(2, 4).T
    assert cells(visualize(sharding, (8, 6))) == CELLS
    assert cells(visualize(sharding)) == CELLS
    copied = visualize(sharding.replicate(1), (8, 6))
    assert cells(copied) == {(row, 0): ((row, row + 4),) for row in range(4)}


def test_pmap_shardings_with_and_without_the_mapped_dimension() -> None:
    devices = jax.devices()[::-1]
    chunked = PmapSharding(devices, ShardingSpec((Chunked([8]), NoSharding()), (ShardedAxis(0),)))
    taken_apart = PmapSharding(
        devices, ShardingSpec((Unstacked(8), NoSharding()), (ShardedAxis(0),))
    )
    for sharding in (chunked, taken_apart):
        shown = visualize(sharding, (8, 3))
        assert cells(shown) == {(row, 0): ((7 - row,),) for row in range(8)}
        assert shown.grid.bounds((2, 0)) == ((2, 3), (0, 3))
    assert "{devices=[8,1]<=[8]}" in headline(visualize(chunked, (8, 3)))
    assert "Unstacked(8)" in headline(visualize(taken_apart, (8, 3)))


def test_shardings_that_wait_for_their_devices() -> None:
    saved = to_json(GSPMDSharding(jax.devices(), "{devices=[4,2]<=[2,4]T(1,0)}"))
    assert saved.count('"0..7"') == 1
    waiting = from_json(saved.replace('"0..7"', '"100..107"'))
    assert type(waiting).__name__ == "DeviceFreeSharding"
    shown = visualize(waiting, (8, 6))
    assert cells(shown) == CELLS
    assert shown.grid.platform is None


def test_an_array() -> None:
    array = jax.device_put(np.ones((8, 6), np.float32), NamedSharding(BOUND, P("y", "x")))
    shown = visualize(array)
    assert cells(shown) == CELLS
    assert shown.to_text().splitlines()[:2] == [
        'float32[8,6] [{"y"}, {"x"}] on mesh x=2, y=4',
        "8 cpu devices: 8 blocks of 2x3, each on one device",
    ]
    held = [(shard.device.id, shard.index) for shard in array.addressable_shards]
    for block, ((device,),) in cells(shown).items():
        assert (device, tuple(slice(*b) for b in shown.grid.bounds(block))) in held
    assert headline(visualize(array, (16, 12))).startswith("float32[16,12] ")


def test_what_describes_an_array() -> None:
    sharding = NamedSharding(MESH, P("y", "x"))
    described = jax.ShapeDtypeStruct((8, 6), jax.numpy.bfloat16, sharding=sharding)
    assert cells(visualize(described)) == CELLS
    assert headline(visualize(described)).startswith("bfloat16[8,6] ")


def test_types_and_tracers_of_explicit_meshes() -> None:
    array = jax.device_put(np.ones((8, 6)), NamedSharding(EXPLICIT, P("y", "x")))
    seen: list[Visualization] = []

    @jax.jit
    def program(x: jax.Array) -> jax.Array:
        seen.append(visualize(x))
        return x

    program(array)
    assert cells(visualize(jax.typeof(array))) == cells(seen[0]) == CELLS


def test_one_device() -> None:
    device = jax.devices()[5]
    shown = visualize(SingleDeviceSharding(device), (2, 3))
    assert cells(shown) == {(0, 0): ((5,),)}
    assert "1 cpu device, with the whole 2x3" in shown.to_text()
    assert cells(visualize(jax.device_put(np.float32(1), device))) == {(): ((5,),)}


def test_devices_in_any_order() -> None:
    order = [3, 1, 2, 0, 7, 6, 5, 4]
    mesh = Mesh(np.array(jax.devices())[order].reshape(2, 4), ("x", "y"))
    found = cells(visualize(NamedSharding(mesh, P(None, ("x", "y"))), (1, 8)))
    assert [found[0, column] for column in range(8)] == [((device,),) for device in order]
    assert cells(visualize(NamedSharding(mesh, P("x")), (2,))) == {
        (0,): ((0, 1, 2, 3),), (1,): ((4, 5, 6, 7),),
    }  # fmt: skip


@pytest.mark.parametrize("mesh", [MESH, MESH.to_jax(), BOUND, BOUND.to_jax(), MESH.mesh_shape])
def test_meshes(mesh: object) -> None:
    shown = visualize(mesh)
    places = {(x, y): ((4 * x + y,),) for x in range(2) for y in range(4)}
    assert cells(shown) == places
    platform = "cpu " if mesh in (BOUND, BOUND.to_jax()) else ""
    assert shown.to_text().splitlines()[:3] == [
        "mesh x=2, y=4",
        f"8 {platform}devices",
        "┌───────────────┬───┬───┬───┬───┐",
    ]


def test_a_mesh_without_axes() -> None:
    assert "mesh without axes" in visualize(jax.sharding.get_abstract_mesh()).to_text()


def test_the_rank_of_a_spec_will_do() -> None:
    shown = visualize(NamedSharding(MESH, P("y", None, "x")))
    assert shown.grid.pieces == (4, 1, 2)
    assert headline(shown) == '[{"y"}, {}, {"x"}] on mesh x=2, y=4'


def test_unreduced_and_open_dimensions_of_jax() -> None:
    partial = visualize(NamedSharding(EXPLICIT, P("y", unreduced={"x"})), (8,))
    assert partial.grid.devices_of((1,)) == ((1,), (5,))
    assert 'unreduced={"x"}' in headline(partial)
    left_open = visualize(NamedSharding(MESH, P("x", P.UNCONSTRAINED)), (8, 8))
    assert left_open.grid.dimensions[1].is_open
    assert "? is a dimension that propagation may cut further" in left_open.to_text()


def test_manual_axes_of_a_mesh() -> None:
    mesh = Mesh.of(x=2, y=4, axis_types=(AxisType.Manual, AxisType.Auto))
    shown = visualize(NamedSharding(mesh, P("y")), (8,))
    assert shown.grid.parts_kind == "manual"
    assert shown.grid.devices_of((2,)) == ((2,), (6,))


def test_memory_kinds_are_named_where_they_are_not_the_default() -> None:
    default = SingleDeviceSharding(jax.devices()[0]).memory_kind
    other = next(
        memory.kind for memory in jax.devices()[0].addressable_memories() if memory.kind != default
    )
    sharding = NamedSharding(BOUND, P("x"))
    assert "memory" not in visualize(sharding, (8,)).to_text()
    assert "memory" not in visualize(sharding.with_memory_kind(default), (8,)).to_text()
    assert (
        f"in memory of kind {other}" in visualize(sharding.with_memory_kind(other), (8,)).to_text()
    )


@dataclass(frozen=True)
class OtherDevice:
    id: int
    process_index: int
    platform: str = "tpu"


class Elsewhere:
    """A sharding over devices of several processes, which one process cannot have."""

    memory_kind = None
    num_devices = 8

    def __init__(self, processes: int) -> None:
        self.device_order = tuple(
            OtherDevice(100 + n, process_index=n * processes // 8) for n in range(8)
        )

    def canonical_hlo(self, ndim: int) -> HloSharding:
        return HloSharding.parse("{devices=[8]<=[8]}")


def test_processes_are_named() -> None:
    shown = visualize(Elsewhere(2), (8,))
    assert "8 tpu devices: 8 blocks of 1, each on one device" in shown.to_text()
    assert "devices 100-103 in process 0; devices 104-107 in process 1" in shown.to_text()
    assert "in 8 processes" in visualize(Elsewhere(8), (8,)).to_text()
    assert "process" not in visualize(Elsewhere(1), (8,)).to_text()


class TakenApart(Elsewhere):
    """What a pmap over dimension 1 makes: each device holds a column, of one dimension less."""

    def __init__(self) -> None:
        super().__init__(1)

    def canonical_hlo(self, ndim: int) -> HloSharding:
        raise ShardingError("not-expressible", "no tile holds less than a block")

    def devices_indices_map(self, shape: tuple[int, ...]) -> dict[object, tuple[object, ...]]:
        return {d: (slice(None), n) for n, d in enumerate(reversed(self.device_order))}


def test_what_no_tile_says_is_read_from_the_index_map() -> None:
    shown = visualize(TakenApart(), (3, 8))
    assert cells(shown) == {(0, n): ((107 - n,),) for n in range(8)}
    assert shown.grid.bounds((0, 2)) == ((0, 3), (2, 3))


# What it gives ------------------------------------------------------------------------------------


def test_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    shown = visualize(NamedSharding(MESH, P("x")), (8,))
    assert (
        str(shown)
        == repr(shown)
        == shown.to_text()
        == """\
[8] [{"x"}] on mesh x=2, y=4
8 devices: 2 blocks of 4, each on 4 devices, copies over "y"
┌───────────────┬─────┬─────┐
│ dim 0 → {"x"} │ 0:4 │ 4:8 │
├───────────────┼─────┼─────┤
│               │ 0-3 │ 4-7 │
└───────────────┴─────┴─────┘"""
    )


def test_text_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = visualize(NamedSharding(Mesh.of(x=64), P("x")), (64,))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, str(shown).splitlines())) <= 40
    assert str(shown) == shown.to_text(40)
    monkeypatch.setenv("COLUMNS", "120")
    assert 100 < max(map(len, str(shown).splitlines())) <= 120


def test_notebooks() -> None:
    shown = visualize(NamedSharding(MESH, P("y", "x")), (8, 6))
    svg = ElementTree.fromstring(shown._repr_svg_())
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    html = ElementTree.fromstring(shown._repr_html_())
    assert html.tag == "div"
    assert ElementTree.tostring(html[0]) == ElementTree.tostring(svg)
    blocks = svg.findall(".//{http://www.w3.org/2000/svg}g[@class='block']")
    places = [tuple(map(int, block.attrib["data-block"].split(","))) for block in blocks]
    assert sorted(places) == sorted(CELLS)


# What rich goes by, which may stand in the environment of the tests as well.
COLORFUL = ("COLORTERM", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in COLORFUL} | {
    "COLUMNS": "80",
    "TERM": "xterm-256color",
}
PRINT = "import shardpass; print(shardpass.visualize(shardpass.MeshShape.of(x=2, y=2)))"


def printed_on_a_terminal(**changes: str) -> str:
    """What a program prints whose standard output is a terminal."""
    environment = {**ENVIRONMENT, **changes}
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", PRINT], stdout=theirs, env=environment)
    os.close(theirs)
    read = b""
    with open(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                piece = terminal.read(4096)
            except OSError:  # what Linux says where the other end is closed
                break
            if not piece:
                break
            read += piece
    assert process.wait(timeout=120) == 0
    return read.decode().replace("\r\n", "\n")


def test_colors_on_a_terminal_alone() -> None:
    plain = visualize(MeshShape.of(x=2, y=2)).to_text() + "\n"
    colored = printed_on_a_terminal()
    assert "\x1b[38;5;16;48;5;" in colored
    assert printed_on_a_terminal(NO_COLOR="1") == plain
    assert printed_on_a_terminal(TERM="dumb") == plain
    piped = subprocess.run(
        [sys.executable, "-c", PRINT],
        env={**ENVIRONMENT, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert piped.stdout.decode() == plain


def test_a_terminal_of_ascii_alone() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", PRINT],
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
        timeout=120,
    )
    expected = visualize(MeshShape.of(x=2, y=2)).to_text(ascii_only=True)
    assert shown.stdout.decode("ascii") == expected + "\n"


# What it refuses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "shape", "slug", "message"),
    [
        (np.ones(3), None, "abstract-type", "a numpy array is on no device: array([1., 1., 1.])"),
        (3, None, "abstract-type", "an array or a sharding is needed, not int 3"),
        (P("x"), (8,), "abstract-type", "an array or a sharding is needed, not PartitionSpec"),
        (
            jax.ShapeDtypeStruct((2,), np.float32),
            None,
            "abstract-type",
            "ShapeDtypeStruct(shape=(2,), dtype=float32) has no sharding yet",
        ),
        (MESH, (8,), "abstract-type", "a mesh lays out no value of shape (8,)"),
        (
            NamedSharding(MESH, P("x", "y")),
            (8, 6),
            "indivisible",
            "dimension 1: 6 elements into 4 pieces",
        ),
        ("{devices=[4,2]<=[8]}", (6, 8), "indivisible", "dimension 0: 6 elements into 4 pieces"),
        (NamedSharding(MESH, P("x", "y")), (8,), "rank-mismatch", "speaks of 2 dimensions"),
        ("{devices=[4,2]<=[8]}", (8,), "rank-mismatch", "is for 2 dimensions, the value has 1"),
        (TensorSharding.build(MESH.mesh_shape, [["x"]]), (), "rank-mismatch", "the value has 0"),
        (
            NamedSharding(MESH, P("x")),
            8,
            "dynamic-shape",
            "a shape is a tuple of whole numbers, not 8",
        ),
        (NamedSharding(MESH, P("x")), (None,), "dynamic-shape", "not (None,)"),
        (NamedSharding(MESH, P("x")), (-8,), "dynamic-shape", "dimension 0 has size -8"),
        ("{{replicated}, {replicated}}", (8,), "not-expressible", "is a tuple of 2 shardings"),
        ("nonsense", (8,), "syntax", 'expected "<"'),
    ],
)
def test_errors(subject: object, shape: object, slug: str, message: str) -> None:
    with pytest.raises(ShardingError) as raised:
        visualize(subject, shape)  # pyright: ignore[reportArgumentType]: that is the point
    assert raised.value.slug == slug
    assert message in str(raised.value)


def test_types_do_not_tell_what_auto_axes_do() -> None:
    array = jax.device_put(np.ones((8, 6)), NamedSharding(BOUND, P("y", "x")))
    with pytest.raises(ShardingError, match="has no sharding yet"):
        visualize(jax.typeof(array))
    with pytest.raises(ShardingError, match="has no sharding yet"):
        jax.jit(visualize)(array)


def test_a_sharding_that_does_not_say_its_rank() -> None:
    with pytest.raises(ShardingError, match="how many dimensions"):
        visualize(TakenApart())
    for make in (GSPMDSharding, JaxGspmdSharding):
        tiles = jax.sharding.NamedSharding(BOUND.to_jax(), jax.sharding.PartitionSpec("y", "x"))
        sharding = make(jax.devices(), tiles._to_xla_hlo_sharding(2))
        assert cells(visualize(sharding)) == CELLS
    pmapped = PmapSharding.default((8, 3))
    assert cells(visualize(pmapped)) == {(row, 0): ((row,),) for row in range(8)}
