"""Reading single lines of HLO, and whole texts of any kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpass.report import Collectives, read_collectives
from shardpass.report.hlo_text import (
    read_hlo,
    read_instruction,
    shape_bytes,
    split_top_level,
    tuple_elements,
)
from tests.report.programs import ASYNC


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[]", 4),
        ("f32[8,32]{1,0}", 1024),
        ("bf16[8,128]{1,0:T(8,128)(2,1)S(1)}", 2048),
        ("(f32[8,8]{1,0}, bf16[4]{0})", 264),
        ("((f32[2]{0}), (s8[3]{0}, token[]))", 11),
        ("pred[7]{0}", 7),
        ("s4[10]{0}", 10),
        ("s4[10]{0:E(4)}", 5),
        ("f32[<=8,2]{1,0}", 64),
        ("f8e4m3fn[16]{0}", 16),
        ("c128[2]{0}", 32),
        ("f32[0,8]{1,0}", 0),
        ("()", 0),
        ("opaque[]", 0),
    ],
)
def test_sizes_of_shapes(shape: str, size: int) -> None:
    assert shape_bytes(shape) == size


def test_elements_of_a_tuple() -> None:
    shape = "(f32[8]{0}, (s32[], u32[2]{0}), /*index=2*/pred[])"
    assert tuple_elements(shape) == ("f32[8]{0}", "(s32[], u32[2]{0})", "pred[]")
    assert tuple_elements("f32[8]{0}") == ("f32[8]{0}",)


def test_commas_in_brackets_do_not_split() -> None:
    assert list(split_top_level("a, f(b, c), {d, e}, g[1,2]")) == [
        "a",
        "f(b, c)",
        "{d, e}",
        "g[1,2]",
    ]


def test_an_instruction() -> None:
    line = (
        "  ROOT %while.2 = (s32[], /*index=1*/f32[8]{0:T(8)}) while(%tuple.1), condition=%cond.1, "
        'body=%body.2, metadata={op_name="calls=%not_this"}'
    )
    op = read_instruction(line)
    assert op is not None
    assert (op.name, op.opcode, op.is_root, op.bytes) == ("while.2", "while", True, 36)
    assert op.operands == ("tuple.1",)
    assert op.callees() == {"condition": ["cond.1"], "body": ["body.2"]}


@pytest.mark.parametrize(
    ("line", "operands"),
    [
        ("  %a = f32[] add(%x, %y.1)", ("x", "y.1")),
        ("  a = f32[] add(x, y.1)", ("x", "y.1")),
        ("  %a = f32[8]{0} add(f32[8]{0} %x, f32[8]{0} %y)", ("x", "y")),
        ("  %a = f32[] tuple(%x, /*index=1*/%y)", ("x", "y")),
        ("  %a = f32[2]{0} constant({1, 2})", ()),
        ("  %a = f32[2]{0} parameter(0)", ()),
        ("  %a = u32[] partition-id()", ()),
    ],
)
def test_operands(line: str, operands: tuple[str, ...]) -> None:
    op = read_instruction(line)
    assert op is not None
    assert op.operands == operands


@pytest.mark.parametrize(
    ("attributes", "callees"),
    [
        ("kind=kLoop, calls=%f.1", {"calls": ["f.1"]}),
        ("branch_computations={%b0, %b1}", {"branches": ["b0", "b1"]}),
        ("true_computation=%t, false_computation=%f", {"branches": ["t", "f"]}),
        ("called_computations={%c}", {"calls": ["c"]}),
        ("to_apply=%add", {"to_apply": ["add"]}),
        ("index=0", {}),
    ],
)
def test_callees(attributes: str, callees: dict[str, list[str]]) -> None:
    op = read_instruction(f"  %a = f32[] call(%x), {attributes}")
    assert op is not None
    assert op.callees() == callees


@pytest.mark.parametrize(
    "line", ["", "}", "  1 {file=2}", "%a = f32[] add(%b)", "  %a = f32[", "x"]
)
def test_what_is_no_instruction(line: str) -> None:
    assert read_instruction(line) is None


def test_computations_and_the_entry() -> None:
    hlo = read_hlo(ASYNC)
    assert list(hlo.computations) == ["add", "wrapped_reduce_scatter", "main"]
    assert hlo.entry == "main"
    root = hlo.computations["wrapped_reduce_scatter"].root
    assert root is not None
    assert root.name == "rs"


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """No error, and nothing found where no line names a collective."""
    found = read_collectives(text)
    assert found.rows == () or any(row.kind in text for row in found.rows)


lines = st.lists(st.sampled_from(ASYNC.splitlines()), max_size=40)


@given(lines, st.lists(st.tuples(st.integers(0, 4000), st.characters()), max_size=5))
def test_garbled_hlo_is_read(shuffled: list[str], edits: list[tuple[int, str]]) -> None:
    """Lines out of order, and characters replaced: an answer, with sizes that are sizes."""
    text = "\n".join(shuffled)
    for at, char in edits:
        text = text[:at] + char + text[at + 1 :]
    found = read_collectives(text)
    assert all(row.bytes >= 0 and row.count >= 1 for row in found.rows)


def test_a_computation_that_seems_to_call_itself() -> None:
    text = "ENTRY %m (p: f32[]) -> f32[] {\n  %c = f32[] call(%c), to_apply=%m\n}\n"
    assert read_collectives(text) == Collectives()
