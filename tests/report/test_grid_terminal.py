"""What a person sees of a device grid on a terminal."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from shardpass.canon import AxisRef, DimSharding, HloSharding, MeshShape, TensorSharding
from shardpass.report import (
    DeviceGrid,
    grid_of_hlo_sharding,
    grid_of_tensor_sharding,
    render_grid_terminal,
)
from shardpass.report.grid_picture import Picture, color_of, left_out_in_the_middle, numbers_text
from shardpass.report.grid_terminal import grid_text

MESH = MeshShape.of(x=2, y=4)
CUBE = MeshShape.of(x=2, y=2, z=2)


def grid(
    mesh: MeshShape, dims: list[list[str]], shape: tuple[int, ...] | None, **changes: list[str]
) -> DeviceGrid:
    return grid_of_tensor_sharding(TensorSharding.build(mesh, dims, **changes), shape, value="v")


def lines(shown: DeviceGrid, width: int = 80) -> list[str]:
    return grid_text(shown, width).splitlines()


def drawn(shown: DeviceGrid, width: int = 80) -> str:
    """The picture without the line that names the sharding."""
    return "\n" + "\n".join(lines(shown, width)[1:]) + "\n"


def test_two_dimensions() -> None:
    shown = grid(MESH, [["x"], ["y"]], (8, 16))
    assert lines(shown)[0] == 'v [{"x"}, {"y"}] on mesh x=2, y=4'
    assert (
        drawn(shown)
        == """
8 devices: 8 blocks of 4x4, each on one device
┌───────────────┬─────┬─────┬──────┬───────┐
│ dim 1 → {"y"} │     │     │      │       │
│ dim 0 ↓ {"x"} │ 0:4 │ 4:8 │ 8:12 │ 12:16 │
├───────────────┼─────┼─────┼──────┼───────┤
│ 0:4           │  0  │  1  │  2   │   3   │
├───────────────┼─────┼─────┼──────┼───────┤
│ 4:8           │  4  │  5  │  6   │   7   │
└───────────────┴─────┴─────┴──────┴───────┘
"""
    )


def test_permuted_devices_and_copies() -> None:
    mesh = MeshShape((("x", 2), ("y", 4)), (7, 2, 5, 0, 1, 6, 3, 4))
    assert (
        drawn(grid(mesh, [["y"], []], (8, 6)))
        == """
8 devices: 4 blocks of 2x6, each on 2 devices, copies over "x"
┌───────────────┬──────┐
│ dim 1 → {}    │      │
│ dim 0 ↓ {"y"} │ 0:6  │
├───────────────┼──────┤
│ 0:2           │ 1, 7 │
├───────────────┼──────┤
│ 2:4           │ 2, 6 │
├───────────────┼──────┤
│ 4:6           │ 3, 5 │
├───────────────┼──────┤
│ 6:8           │ 0, 4 │
└───────────────┴──────┘
"""
    )


def test_one_dimension() -> None:
    assert (
        drawn(grid(MESH, [["y", "x"]], (16,)), 90)
        == """
8 devices: 8 blocks of 2, each on one device
┌────────────────────┬─────┬─────┬─────┬─────┬──────┬───────┬───────┬───────┐
│ dim 0 → {"y", "x"} │ 0:2 │ 2:4 │ 4:6 │ 6:8 │ 8:10 │ 10:12 │ 12:14 │ 14:16 │
├────────────────────┼─────┼─────┼─────┼─────┼──────┼───────┼───────┼───────┤
│                    │  0  │  4  │  1  │  5  │  2   │   6   │   3   │   7   │
└────────────────────┴─────┴─────┴─────┴─────┴──────┴───────┴───────┴───────┘
"""
    )


def test_a_scalar() -> None:
    assert (
        drawn(grid(MESH, [], ()))
        == """
8 devices, the whole on each, copies over "x", "y"
┌─────┐
│ 0-7 │
└─────┘
"""
    )


def test_one_device() -> None:
    alone = grid_of_tensor_sharding(TensorSharding(MeshShape.maximal(3), ()), (5, 7))
    assert (
        grid_text(alone)
        == """\
[]
1 device, with the whole 5x7
┌───────────────┬─────┐
│ dim 1 → whole │     │
│ dim 0 ↓ whole │ 0:7 │
├───────────────┼─────┤
│ 0:5           │  3  │
└───────────────┴─────┘"""
    )


def test_three_cut_dimensions_are_grids_side_by_side() -> None:
    shown = grid(CUBE, [["x"], ["y"], ["z"]], (8, 4, 6))
    assert (
        drawn(shown)
        == """
8 devices: 8 blocks of 4x2x3, each on one device
[0:4, :, :]                    [4:8, :, :]
┌───────────────┬─────┬─────┐  ┌───────────────┬─────┬─────┐
│ dim 2 → {"z"} │     │     │  │ dim 2 → {"z"} │     │     │
│ dim 1 ↓ {"y"} │ 0:3 │ 3:6 │  │ dim 1 ↓ {"y"} │ 0:3 │ 3:6 │
├───────────────┼─────┼─────┤  ├───────────────┼─────┼─────┤
│ 0:2           │  0  │  1  │  │ 0:2           │  4  │  5  │
├───────────────┼─────┼─────┤  ├───────────────┼─────┼─────┤
│ 2:4           │  2  │  3  │  │ 2:4           │  6  │  7  │
└───────────────┴─────┴─────┘  └───────────────┴─────┴─────┘
"""
    )
    narrow = lines(shown, 40)
    assert [line for line in narrow if line.startswith("[")] == ["[0:4, :, :]", "[4:8, :, :]"]
    assert max(map(cell_len, narrow)) <= 40


def test_of_many_dimensions_those_that_are_cut_are_drawn() -> None:
    assert (
        drawn(grid(CUBE, [[], ["x"], [], ["z"], []], (3, 4, 5, 6, 7)))
        == """
8 devices: 4 blocks of 3x2x5x3x7, each on 2 devices, copies over "y"
┌───────────────┬──────┬──────┐
│ dim 3 → {"z"} │      │      │
│ dim 1 ↓ {"x"} │ 0:3  │ 3:6  │
├───────────────┼──────┼──────┤
│ 0:2           │ 0, 2 │ 1, 3 │
├───────────────┼──────┼──────┤
│ 2:4           │ 4, 6 │ 5, 7 │
└───────────────┴──────┴──────┘
"""
    )
    one = lines(grid(CUBE, [["x"], [], []], (4, 5, 6)))
    assert one[3:5] == ["│ dim 2 → {}    │     │", '│ dim 0 ↓ {"x"} │ 0:6 │']
    assert [one[6], one[8]] == ["│ 0:2           │ 0-3 │", "│ 2:4           │ 4-7 │"]


def test_partial_results_and_open_dimensions() -> None:
    sharding = TensorSharding(
        CUBE,
        (DimSharding((AxisRef("x"),), open=True, priority=1), DimSharding(open=True)),
        unreduced=(AxisRef("z"),),
    )
    assert (
        grid_text(grid_of_tensor_sharding(sharding, (4, 6), value="f32[4,6]"))
        == """\
f32[4,6] [{"x", ?}p1, {?}], unreduced={"z"} on mesh x=2, y=2, z=2
8 devices: 2 blocks of 2x6, each on 4 devices, copies over "y"
unreduced over "z": partial results, still to be summed, a + b
? is a dimension that propagation may cut further
┌────────────────────┬───────────────┐
│ dim 1 → {?}        │               │
│ dim 0 ↓ {"x", ?}p1 │      0:6      │
├────────────────────┼───────────────┤
│ 0:2                │ (0,2) + (1,3) │
├────────────────────┼───────────────┤
│ 2:4                │ (4,6) + (5,7) │
└────────────────────┴───────────────┘"""
    )


def test_other_reductions_and_manual_axes_are_told_apart() -> None:
    largest = TensorSharding(MESH, (), unreduced=(AxisRef("x"), AxisRef("y")), reduction="max")
    shown = lines(grid_of_tensor_sharding(largest), 120)
    assert shown[2] == (
        'unreduced over "x", "y": partial results, still to be combined by max, a max b'
    )
    assert "0 max 1 max 2 max 3 max 4 max 5 max 6 max 7" in shown[4]
    manual = TensorSharding.build(MESH, [["y"]])
    shown = lines(grid_of_tensor_sharding(manual, (8,), manual_axes=["x"]))
    assert shown[2] == 'manual over "x": the devices of a block hold values of their own, a | b'
    assert "│ 0 | 4 │ 1 | 5 │ 2 | 6 │ 3 | 7 │" in shown[6]


def test_tiles_have_no_names() -> None:
    tiled = HloSharding.parse("{devices=[4,1,2]<=[8] last_tile_dim_replicate}")
    shown = lines(grid_of_hlo_sharding(tiled, (8, 3)))
    assert shown[:2] == [
        "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
        "8 devices: 4 blocks of 2x3, each on 2 devices",
    ]
    assert shown[3:5] == ["│ dim 1 → whole │      │", "│ dim 0 ↓ in 4  │ 0:3  │"]
    shown = lines(grid_of_hlo_sharding(HloSharding.replicated(), (8,)))
    assert shown[1] == "any number of devices, the whole 8 on each"
    assert "every device" in shown[5]


def test_without_a_shape_blocks_are_counted() -> None:
    assert (
        drawn(grid(MESH, [["x"], []], None))
        == """
8 devices: 2 blocks, each on 4 devices, copies over "y"
┌───────────────┬─────┐
│ dim 1 → {}    │     │
│ dim 0 ↓ {"x"} │  0  │
├───────────────┼─────┤
│ 0             │ 0-3 │
├───────────────┼─────┤
│ 1             │ 4-7 │
└───────────────┴─────┘
"""
    )


def test_512_devices() -> None:
    mesh = MeshShape.of(data=128, model=4)
    assert (
        drawn(grid(mesh, [["data"], [], ["model"]], (256, 3, 64)))
        == """
512 devices: 512 blocks of 2x3x16, each on one device
┌───────────────────┬──────┬───────┬───────┬───────┐
│ dim 2 → {"model"} │      │       │       │       │
│ dim 0 ↓ {"data"}  │ 0:16 │ 16:32 │ 32:48 │ 48:64 │
├───────────────────┼──────┼───────┼───────┼───────┤
│ 0:2               │  0   │   1   │   2   │   3   │
│ 2:4               │  4   │   5   │   6   │   7   │
│ 4:6               │  8   │   9   │  10   │  11   │
│ 6:8               │  12  │  13   │  14   │  15   │
│ 8:10              │  16  │  17   │  18   │  19   │
│ 10:12             │  20  │  21   │  22   │  23   │
│ …                 │  …   │   …   │   …   │   …   │
│ 244:246           │ 488  │  489  │  490  │  491  │
│ 246:248           │ 492  │  493  │  494  │  495  │
│ 248:250           │ 496  │  497  │  498  │  499  │
│ 250:252           │ 500  │  501  │  502  │  503  │
│ 252:254           │ 504  │  505  │  506  │  507  │
│ 254:256           │ 508  │  509  │  510  │  511  │
└───────────────────┴──────┴───────┴───────┴───────┘
shown: 12 of 128 rows
"""
    )


@pytest.mark.parametrize(
    ("dims", "shape", "footer", "some_cell"),
    [
        ([["a"], ["b"]], (4096, 4096), "shown: 12 of 64 rows, 5 of 64 columns", "4095"),
        ([["a", "b"], []], (4096, 2), "shown: 12 of 4096 rows", "4095"),
        ([["a"], []], (4096, 2), "shown: 12 of 64 rows", "4032-4095"),
        ([[], ["b"]], (2, 4096), "shown: 4 of 64 columns", "0, 64, … 4032"),
        ([["b", "a"]], (4096,), "shown: 6 of 4096 columns", "64"),
        ([[], []], (2, 2), None, "0-4095"),
    ],
)
def test_4096_devices_fit_on_a_page(
    dims: list[list[str]], shape: tuple[int, ...], footer: str | None, some_cell: str
) -> None:
    shown = lines(grid(MeshShape.of(a=64, b=64), dims, shape))
    assert len(shown) < 26
    assert max(map(cell_len, shown)) <= 80
    assert some_cell in "\n".join(shown)
    if footer is None:
        assert shown[-1].startswith("└")
    else:
        assert shown[-1] == footer


def test_4096_devices_in_three_dimensions_fit_on_a_page() -> None:
    shown = lines(grid(MeshShape.of(a=16, b=16, c=16), [["a"], ["b"], ["c"]], (4096,) * 3))
    assert [line for line in shown if line[0] in "[…"] == [
        "[0:256, :, :]",
        "[256:512, :, :]",
        "…",
        "[3584:3840, :, :]",
        "[3840:4096, :, :]",
    ]
    assert shown[-1] == "shown: 4 of 16 grids, 6 of 16 rows, 5 of 16 columns"
    assert len(shown) < 60


@pytest.mark.parametrize("width", [20, 24, 32, 48, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for shown in (
        grid(MESH, [["x"], ["y"]], (8, 16)),
        grid(MeshShape.of(data=64, model=64), [[], ["model"]], (8, 4096)),
        grid(CUBE, [["x"], ["y"], ["z"]], (8, 8, 8)),
        grid(MeshShape.of(a_rather_long_axis_name=2), [["a_rather_long_axis_name"]], (8,)),
        grid(MESH, [], ()),
    ):
        assert max(map(cell_len, lines(shown, width))) <= width


def test_names_wide_and_strange() -> None:
    mesh = MeshShape((("データ", 2), ('a"b[bold]\x1b[31m\n', 2), ("", 2)))
    shown = lines(grid(mesh, [["データ"], ['a"b[bold]\x1b[31m\n'], [""]], (2, 2, 2)), 100)
    text = "\n".join(shown)
    assert "\x1b" not in text
    assert 'on mesh データ=2, a"b[bold]\\x1b[31m\\n=2, =2' in " ".join(shown[:2])
    assert r'dim 1 ↓ {"a"b[bold]\x1b[31m\n"}' in text
    assert 'v [{"データ"}, {' in shown[0]
    rows = [line for line in shown if line.startswith("│")]
    assert len({cell_len(line) for line in rows}) == 1


def test_an_ascii_terminal() -> None:
    shown = grid(MeshShape((("データ", 64), ("y", 4))), [["データ"], ["y"]], (64, 8))
    text = grid_text(shown, ascii_only=True)
    assert text.isascii()
    assert r"on mesh \u30c7\u30fc\u30bf=64, y=4" in text
    assert '| dim 1 -> {"y"}' in text
    assert "dim 0 v " in text
    assert "..." in text


def test_colors_are_of_blocks_and_readable() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="truecolor", width=80)
    shown = grid(CUBE, [["x"], ["y"]], (4, 4))
    render_grid_terminal(shown, console)
    styles = re.findall(r"\x1b\[([\d;]+)m +(\d), (\d) +\x1b\[0m", file.getvalue())
    picture = Picture.of(shown)
    expected = {}
    for block in shown.blocks():
        color = color_of(picture, block)
        channels = [str(int(color[i : i + 2], 16)) for i in (1, 3, 5)]
        expected[shown.devices_of(block)[0]] = f"38;2;0;0;0;48;2;{';'.join(channels)}"
    assert {(int(a), int(b)): style for style, a, b in styles} == expected
    assert len(set(expected.values())) == 4


def test_without_color_there_are_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    file = io.StringIO()
    render_grid_terminal(grid(MESH, [["x"]], (4,)), Console(file=file, width=80))
    assert "\x1b" not in file.getvalue()
    assert '│ dim 0 → {"x"} │ 0:2 │ 2:4 │' in file.getvalue()


def luminance(color: str) -> float:
    """As WCAG 2 defines it."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_black_is_readable_on_every_color() -> None:
    picture = Picture.of(grid(MeshShape.of(a=64, b=64), [["a"], ["b"]], None))
    colors = [color_of(picture, block) for block in picture.grid.blocks()]
    # WCAG asks for a contrast of 7 to 1 at most (level AAA).
    assert min((luminance(color) + 0.05) / 0.05 for color in colors) > 7
    for row in range(63):
        for column in range(63):
            here = colors[64 * row + column]
            assert here not in (colors[64 * row + column + 1], colors[64 * (row + 1) + column])


@pytest.mark.parametrize(
    ("numbers", "count", "text"),
    [
        ((3,), 1, "3"),
        ((3, 4), 2, "3, 4"),
        ((3, 4, 5), 3, "3-5"),
        ((0, 2, 3, 4, 9), 5, "0, 2-4, 9"),
        (tuple(range(0, 40, 4)), 10, "0, 4, … 36 (10)"),
        ((0, 1, 2, 3), 5000, "0, 1, … (5000)"),
    ],
)
def test_lists_of_devices(numbers: tuple[int, ...], count: int, text: str) -> None:
    assert numbers_text(numbers, count, 8, "…") == text


def test_both_ends_are_left() -> None:
    assert left_out_in_the_middle(5, 5) == (0, 1, 2, 3, 4)
    assert left_out_in_the_middle(100, 5) == (0, 1, 2, None, 98, 99)
    assert left_out_in_the_middle(100, 1) == (0, None)
