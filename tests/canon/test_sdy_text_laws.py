"""Shardy's text: read and printed as Shardy does, and refused where its verifier refuses."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.mlir import ir
from jax.interpreters.mlir import make_ir_context
from strategies import mesh_shapes, tensor_shardings

from shardpass.canon import AxisRef, DimSharding, MeshShape, TensorSharding
from shardpass.diagnostics import ShardingError

CONTEXT = make_ir_context()
MAX_OVER_X = '#sdy.sharding<@mesh, [{}], unreduced=max{"x"}>'


def printed_by_shardy(text: str) -> str:
    with CONTEXT:
        return str(ir.Attribute.parse(text))


def verifies(mesh: str, sharding: str, rank: int) -> bool:
    """Whether Shardy's verifier takes ``sharding`` as that of a tensor of ``rank`` dimensions."""
    shape = "x".join(["64"] * rank + ["f32"])
    module = (
        f"sdy.mesh @mesh = {mesh}\n"
        f"func.func @f(%a: tensor<{shape}> {{sdy.sharding = {sharding}}}) {{ return }}"
    )
    with CONTEXT:
        try:
            return ir.Module.parse(module).operation.verify()
        except ir.MLIRError:
            return False


# Kinds of reduction came with the Shardy of jaxlib 0.12.
REDUCTIONS = (None, "max", "min") if verifies('<["x"=2]>', MAX_OVER_X, 1) else (None,)


@given(mesh_shapes())
def test_meshes_are_printed_as_shardy_prints_them(mesh: MeshShape):
    assert printed_by_shardy(f"#sdy.mesh{mesh}") == f"#sdy.mesh{mesh}"
    assert MeshShape.parse(str(mesh)) == mesh
    assert MeshShape.parse(f"#sdy.mesh{mesh}") == mesh


@given(tensor_shardings(reductions=REDUCTIONS))
def test_shardings_are_printed_as_shardy_prints_them(sharding: TensorSharding):
    for text in (str(sharding), sharding.to_sdy("mesh"), sharding.to_sdy("my mesh")):
        assert printed_by_shardy(text) == text


@given(tensor_shardings(reductions=(None, "max", "min")))
def test_shardings_are_read_as_they_are_printed(sharding: TensorSharding):
    meshes = {"mesh": sharding.mesh, "my mesh": sharding.mesh}
    assert TensorSharding.parse(str(sharding)) == sharding
    for name in meshes:
        assert TensorSharding.parse(sharding.to_sdy(name), meshes) == sharding
    bare = str(sharding).removeprefix("#sdy.sharding")
    assert TensorSharding.parse(bare) == sharding


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
def test_any_axis_name_survives(name: str):
    """Quotes, backslashes, newlines, any Unicode: escaped as MLIR escapes them."""
    sharding = TensorSharding.build(MeshShape(((name, 2),)), [[name]])
    assert printed_by_shardy(str(sharding)) == str(sharding)
    assert TensorSharding.parse(str(sharding)) == sharding


@settings(max_examples=200)
@given(st.data())
def test_the_constructor_agrees_with_shardys_verifier(data: st.DataObject):
    """On shardings put together without care: axes twice, out of order, mergeable, unknown."""
    mesh = MeshShape.of(x=4, y=2, z=8)
    refs = st.sampled_from(REFS)
    dims = data.draw(st.lists(st.lists(refs, max_size=2), min_size=1, max_size=2))
    replicated = data.draw(st.lists(refs, max_size=2))
    unreduced = data.draw(st.lists(refs, max_size=1))
    parts = [f"[{', '.join('{' + ', '.join(dim) + '}' for dim in dims)}]"]
    parts += [f"replicated={{{', '.join(replicated)}}}"] * bool(replicated)
    parts += [f"unreduced={{{', '.join(unreduced)}}}"] * bool(unreduced)
    text = f"#sdy.sharding<@mesh, {', '.join(parts)}>"
    refused = refusal_of(lambda: TensorSharding.parse(text, {"mesh": mesh}))
    assert (refused is None) == verifies(str(mesh), text, len(dims))


REFS = (
    *('"x"', '"y"', '"z"', '"x":(1)2', '"x":(2)2', '"z":(1)2', '"z":(2)2', '"z":(4)2', '"z":(2)4'),
    *('"z":(1)4', '"q"', '"x":(1)4', '"x":(2)4', '"y":(1)2', '"z":(3)2'),
)

# Edge cases by hand: mesh, sharding, rank, the slug it is refused with.
BY_HAND = [
    ('<["x"=2, "y"=4]>', '[{"y":(1)2, "y":(2)2}, {}]', "axis-order"),
    ('<["x"=2, "y"=4]>', '[{"y":(2)2, "y":(1)2}, {}]', None),
    ('<["x"=2, "y"=4]>', '[{"x":(1)2}, {}]', "bad-sub-axis"),
    ('<["x"=2, "y"=4]>', '[{}, {}], replicated={"y", "x"}', "axis-order"),
    ('<["x"=2, "y"=4]>', '[{}, {}], unreduced={"y", "x"}', "axis-order"),
    ('<["x"=2, "y"=4]>', "[{}p1, {}]", "bad-priority"),
    ('<["x"=2, "y"=4]>', "[{?}p1, {}]", None),
    ('<["x"=2, "y"=4]>', '[{"x"}, {"x"}]', "duplicate-axis"),
    ('<["x"=2, "y"=4]>', '[{"x"}, {}], replicated={"x"}', "duplicate-axis"),
    ('<["x"=2, "y"=4]>', '[{"x"}, {}], unreduced={"x"}', "duplicate-axis"),
    ('<["x"=2, "y"=4]>', '[{"y"}, {"y":(1)2}]', "duplicate-axis"),
    ('<["x"=2, "y"=8]>', '[{"y":(1)4}, {"y":(2)4}]', "duplicate-axis"),
    ('<["x"=2, "y"=8]>', '[{"y":(3)2}, {}]', "bad-sub-axis"),
    ('<["x"=2, "y"=8]>', '[{"y":(2)1}, {}]', "bad-sub-axis"),
    ('<["x"=2, "y"=8]>', '[{"y":(0)2}, {}]', "bad-sub-axis"),
    ('<["x"=2, "y"=8]>', '[{"y":(4)4}, {}]', "bad-sub-axis"),
    ('<["x"=2, "y"=4]>', '[{"q"}, {}]', "unknown-axis"),
    ("<[], device_ids=[3]>", "[{}, {}]", "rank-mismatch"),
    ("<[]>", "[{}, {}]", None),
]


@pytest.mark.parametrize(("mesh", "dims", "slug"), BY_HAND)
def test_refused_by_shardy_and_by_ours_with_a_slug(mesh: str, dims: str, slug: str | None):
    text = f"#sdy.sharding<@mesh, {dims}>"
    assert verifies(mesh, text, 2) == (slug is None)
    meshes = {"mesh": MeshShape.parse(mesh)}
    if slug is None:
        assert TensorSharding.parse(text, meshes).to_sdy("mesh") == text
        return
    with pytest.raises(ShardingError) as refused:
        TensorSharding.parse(text, meshes)
    assert refused.value.slug == slug
    assert refused.value.diagnostic.excerpt is not None


def test_parts_of_an_axis_that_no_split_holds_are_refused_where_shardy_lets_them_through():
    """6 = 2 x 3 and 6 = 3 x 2: the two halves are not digits of one number."""
    text = '#sdy.sharding<@mesh, [{"a":(1)2}, {"a":(3)2}]>'
    assert verifies('<["a"=6]>', text, 2)
    with pytest.raises(ShardingError) as refused:
        TensorSharding.parse(text, {"mesh": MeshShape.of(a=6)})
    assert refused.value.slug == "duplicate-axis"


BAD_MESHES = [
    ('<["a"=2, "b"=0]>', "syntax"),
    ('<["a"=2, "b"=2, "a"=4]>', "bad-mesh"),
    ("<[], device_ids=[-1]>", "syntax"),
    ("<[], device_ids=[1, 0]>", "bad-mesh"),
    ('<["a"=2, "b"=2], device_ids=[0, 2, 1, 3, 4, 5]>', "bad-mesh"),
    ('<["a"=2], device_ids=[0]>', "bad-mesh"),
    ('<["a"=2], device_ids=[1, 1]>', "bad-mesh"),
    ('<["a"=2], device_ids=[2, 1]>', "bad-mesh"),
    ('<["a"=2], device_ids=[]>', "syntax"),
    ('<["a"=2]', "syntax"),
    ('<["a"=2]> x', "trailing-text"),
    ("<[a=2]>", "syntax"),
]


@pytest.mark.parametrize(("text", "slug"), BAD_MESHES)
def test_refuses_bad_meshes(text: str, slug: str):
    with CONTEXT, pytest.raises((ir.MLIRError, ValueError)):
        ir.Attribute.parse(f"#sdy.mesh{text}")
    with pytest.raises(ShardingError) as refused:
        MeshShape.parse(text)
    assert refused.value.slug == slug


def test_device_ids_that_only_count_are_dropped_as_shardy_drops_them():
    text = '#sdy.mesh<["x"=2, "y"=4], device_ids=[0, 1, 2, 3, 4, 5, 6, 7]>'
    assert MeshShape.parse(text) == MeshShape.of(x=2, y=4)
    assert printed_by_shardy(text) == f"#sdy.mesh{MeshShape.of(x=2, y=4)}"


MISWRITTEN = [
    ('#sdy.sharding<@mesh, [{?, "x"}]>', 'expected "}" after "?", found ","', 25),
    ('#sdy.sharding<@mesh, [{"x",}]>', 'expected an axis name in double quotes, found "}"', 28),
    ('#sdy.sharding<@mesh, [{"x"}p-1]>', 'expected a priority such as "p1", found "p"', 28),
    ('#sdy.sharding<@mesh, [{"x"}p01]>', 'expected a priority such as "p1", found "p01"', 28),
    ('#sdy.sharding<@mesh, [{"x"}], replicated={}>', "expected an axis name", 43),
    ('#sdy.sharding<@mesh, [{"x"}] replicated={"y"}>', 'expected ">", found "r"', 30),
    ('#sdy.sharding<@mesh, [{"x"}],>', "expected ", 30),
    ("#sdy.sharding<@mesh>", 'expected "," after the mesh, found ">"', 20),
    ('#sdy.sharding<@other, [{"x"}]>', "unknown mesh @other; the module has @mesh", 16),
    ('#sdy.sharding<@mesh, [{"x"}]', 'expected ">", found the end', 29),
    ('#sdy.sharding<@mesh, [{"x"}]> ]', "1 more character after the end", 31),
    ('#sdy.sharding<@mesh, [{"x"}], unreduced=add{"y"}>', '"add" is none of sum, max, min', 41),
    ('#sdy.sharding<@mesh, [{"x}]>', "an axis name in double quotes is not closed", 24),
    ('#sdy.sharding<@mesh, [{"\\q"}]>', "an escape that is not MLIR's", 24),
    ('#sdy.sharding<@mesh, [{"x"} /* c */]>', "a comment inside a sharding", 29),
]


@pytest.mark.parametrize(("text", "message", "column"), MISWRITTEN)
def test_says_what_is_wrong_and_where(text: str, message: str, column: int):
    with pytest.raises(ShardingError) as refused:
        TensorSharding.parse(text, {"mesh": MeshShape.of(x=2, y=4)})
    diagnostic = refused.value.diagnostic
    assert message in diagnostic.message
    assert diagnostic.excerpt is not None
    assert diagnostic.excerpt.column == column


TOKENS = [
    *'<>[]{}"@#?:=,()\\',
    "x",
    "y",
    "p1",
    "0",
    "8",
    " ",
    "#sdy.sharding",
    "#sdy.mesh",
    "mesh<[",
]


@given(st.lists(st.sampled_from(TOKENS)).map("".join))
def test_no_text_does_worse_than_an_error_with_a_place(text: str):
    for parse in (MeshShape.parse, TensorSharding.parse):
        error = refusal_of(lambda parse=parse: parse(text))
        assert error is None or error.diagnostic.excerpt is not None


def refusal_of(action: Callable[[], object]) -> ShardingError | None:
    try:
        action()
    except ShardingError as error:
        return error
    return None


def test_a_name_that_is_nearly_one_of_the_mesh_is_guessed():
    with pytest.raises(ShardingError) as refused:
        TensorSharding.build(MeshShape.of(data=2, model=4), [["modle"]])
    assert refused.value.diagnostic.help == 'did you mean "model"?'


def test_build_takes_names_as_rules_write_them():
    mesh = MeshShape.of(x=2, y=4, z=1)
    built = TensorSharding.build(mesh, ["x", [], "?", ["y", "?"]], unreduced=["z"])
    assert built == TensorSharding(
        mesh,
        (
            DimSharding((AxisRef("x"),)),
            DimSharding(),
            DimSharding(open=True),
            DimSharding((AxisRef("y"),), open=True),
        ),
        unreduced=(AxisRef("z"),),
    )
    assert built.dims_text() == '[{"x"}, {}, {?}, {"y", ?}]'
    assert built.closed().dims_text() == '[{"x"}, {}, {}, {"y"}]'
    assert built.opened().dims_text() == '[{"x", ?}, {?}, {?}, {"y", ?}]'
