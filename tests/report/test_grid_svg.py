"""What a person sees of a device grid in a notebook: parsed, and its blocks looked at."""

from xml.etree import ElementTree

import pytest

from shardpass.canon import HloSharding, MeshShape, TensorSharding
from shardpass.report import (
    DeviceGrid,
    grid_of_hlo_sharding,
    grid_of_tensor_sharding,
    grid_svg,
)
from shardpass.report.grid_picture import Picture, color_of

MESH = MeshShape.of(x=2, y=4)
SVG = "{http://www.w3.org/2000/svg}"


def grid(mesh: MeshShape, dims: list[list[str]], shape: tuple[int, ...] | None) -> DeviceGrid:
    return grid_of_tensor_sharding(TensorSharding.build(mesh, dims), shape, value="f32")


def parse(shown: DeviceGrid) -> ElementTree.Element:
    root = ElementTree.fromstring(grid_svg(shown))
    assert root.tag == f"{SVG}svg"
    return root


def blocks(root: ElementTree.Element) -> dict[str, ElementTree.Element]:
    found = root.findall(f".//{SVG}g[@class='block']")
    return {block.attrib["data-block"]: block for block in found}


def texts(element: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in element.iter(f"{SVG}text")]


def rectangle(block: ElementTree.Element) -> tuple[float, float, float, float]:
    box = block.find(f"{SVG}rect")
    assert box is not None
    x, y, width, height = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def test_two_dimensions() -> None:
    shown = grid(MESH, [["y"], ["x"]], (8, 6))
    root = parse(shown)
    assert {place: texts(block) for place, block in blocks(root).items()} == {
        "0,0": ["0"], "0,1": ["4"], "1,0": ["1"], "1,1": ["5"],
        "2,0": ["2"], "2,1": ["6"], "3,0": ["3"], "3,1": ["7"],
    }  # fmt: skip
    titles = {place: block.findtext(f"{SVG}title") for place, block in blocks(root).items()}
    assert titles["2,1"] == "[4:6, 3:6] on device 6"
    everything = texts(root)
    assert everything[:2] == [
        'f32 [{"y"}, {"x"}] on mesh x=2, y=4',
        "8 devices: 8 blocks of 2x3, each on one device",
    ]
    assert {'dim 1 → {"x"}', 'dim 0 ↓ {"y"}', "0:3", "3:6", "0:2", "6:8"} <= set(everything)
    picture = Picture.of(shown)
    for block in shown.blocks():
        box = blocks(root)[",".join(map(str, block))].find(f"{SVG}rect")
        assert box is not None
        assert box.attrib["fill"] == color_of(picture, block)


def test_blocks_lie_side_by_side_and_within_the_picture() -> None:
    root = parse(grid(MESH, [["y"], ["x"]], (8, 6)))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
    boxes = {place: rectangle(block) for place, block in blocks(root).items()}
    for left, top, right, bottom in boxes.values():
        assert 0 < left < right < width
        assert 0 < top < bottom < height
    for row in range(4):
        assert boxes[f"{row},0"][2] == pytest.approx(boxes[f"{row},1"][0], abs=0.11)
    for row in range(3):
        assert boxes[f"{row},0"][3] == pytest.approx(boxes[f"{row + 1},0"][1], abs=0.11)


def test_long_blocks_are_drawn_longer() -> None:
    def aspect(shape: tuple[int, ...]) -> float:
        left, top, right, bottom = rectangle(blocks(parse(grid(MESH, [["x"], []], shape)))["0,0"])
        return (right - left) / (bottom - top)

    assert aspect((8, 256)) > 2 * aspect((8, 8)) > aspect((256, 8))


def test_copies_partial_results_and_scalars() -> None:
    root = parse(grid(MESH, [["x"], []], (4, 4)))
    assert {place: texts(block) for place, block in blocks(root).items()} == {
        "0,0": ["0-3"],
        "1,0": ["4-7"],
    }
    partial = TensorSharding.build(MESH, [["y"]], unreduced=["x"])
    root = parse(grid_of_tensor_sharding(partial, (8,)))
    assert texts(blocks(root)["1"]) == ["1 + 5"]
    assert 'unreduced over "x": partial results, still to be summed, a + b' in texts(root)
    root = parse(grid(MESH, [], ()))
    assert texts(blocks(root)[""]) == ["0-7"]
    root = parse(grid_of_hlo_sharding(HloSharding.replicated(), (4,)))
    assert texts(blocks(root)["0"]) == ["every device"]


def test_three_dimensions() -> None:
    root = parse(grid(MeshShape.of(x=2, y=2, z=2), [["z"], ["y"], ["x"]], (8, 8, 8)))
    assert {place: texts(block) for place, block in blocks(root).items()} == {
        "0,0,0": ["0"], "0,0,1": ["4"], "0,1,0": ["2"], "0,1,1": ["6"],
        "1,0,0": ["1"], "1,0,1": ["5"], "1,1,0": ["3"], "1,1,1": ["7"],
    }  # fmt: skip
    assert {"[0:4, :, :]", "[4:8, :, :]"} <= set(texts(root))
    boxes = [rectangle(block) for block in blocks(root).values()]
    assert len({box[:2] for box in boxes}) == 8


@pytest.mark.parametrize(
    ("sizes", "dims", "most_blocks"),
    [
        ((64, 64), [["a"], ["b"]], 12 * 32),
        ((4096, 1), [["a"], ["b"]], 12),
        ((1, 4096), [["a"], ["b"]], 32),
    ],
)
def test_4096_devices_are_not_all_drawn(
    sizes: tuple[int, int], dims: list[list[str]], most_blocks: int
) -> None:
    mesh = MeshShape.of(a=sizes[0], b=sizes[1])
    svg = grid_svg(grid(mesh, dims, (4096, 4096)))
    root = ElementTree.fromstring(svg)
    assert 4 < len(blocks(root)) <= most_blocks
    assert f"{sizes[0] - 1},{sizes[1] - 1}" in blocks(root)
    assert any(text.startswith("shown: ") for text in texts(root))
    assert "…" in texts(root)
    assert len(svg) < 200_000
    assert float(root.attrib["width"]) < 1000


def test_4096_devices_in_three_dimensions() -> None:
    root = parse(grid(MeshShape.of(a=16, b=16, c=16), [["a"], ["b"], ["c"]], (4096,) * 3))
    found = blocks(root)
    assert {"0,0,0", "1,0,0", "14,0,0", "15,15,15"} <= found.keys()
    assert not any(place.startswith("2,") for place in found)
    assert texts(root)[-1].startswith("shown: 4 of 16 grids, 6 of 16 rows")


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "&amp; ]]> <!--",
        "\"'",
        "\x00\x01\x1b[31m\uffff",
        "\u202eevil\u2028",
        "データ🙂",
        "",
    ],
)
def test_names_are_text_and_nothing_else(name: str) -> None:
    sharding = TensorSharding.build(MeshShape(((name, 2),)), [[name]])
    svg = grid_svg(grid_of_tensor_sharding(sharding, (4,), value=f"v{name}\ud800"))
    root = ElementTree.fromstring(svg)
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags == {"svg", "rect", "g", "title", "text"}
    assert not {"\x00", "\x1b", "\ud800", "\u202e"} & set(svg)
    escaped = name.encode("unicode_escape").decode("ascii")
    shown = name if name.isprintable() else escaped
    headline = " ".join(texts(root)).partition(" 2 devices")[0]
    assert headline.startswith(f'v{shown}\\ud800 [{{"{shown}"}}]')
    assert headline.endswith(f"on mesh {shown}=2")
