"""Sharding attributes to and from the canonical form."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.mlir import ir
from jax.extend.sharding import get_hlo_sharding_from_serialized_proto
from strategies import hlo_shardings, mesh_shapes, tensor_shardings

from shardpass.canon import HloSharding, MeshShape, TensorSharding
from shardpass.diagnostics import ShardingError
from shardpass.mlir import (
    Shardings,
    argument_attributes,
    attributes,
    declare_mesh,
    load,
    make_context,
    mesh_ops,
    meshes_of,
    num_partitions,
    read_mhlo,
    set_num_partitions,
    write_mhlo,
)

MESH = MeshShape.of(x=2, y=4)
TEXT = """\
sdy.mesh @mesh = <["x"=2, "y"=4]>
sdy.mesh @permuted = <["x"=2], device_ids=[1, 0]>
sdy.mesh @one = <[], device_ids=[3]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>})
    -> tensor<8x8xf32> {
  %0:2 = stablehlo.custom_call @f(%a) {sdy.sharding = #sdy.sharding_per_value<[
      <@mesh, [{"y"}, {}]>, <@one, []>]>} : (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<2xf32>)
  return %0#0 : tensor<8x8xf32>
}
"""


def test_meshes_by_name() -> None:
    root = load(TEXT).root
    assert meshes_of(root) == {
        "mesh": MESH,
        "permuted": MeshShape((("x", 2),), (1, 0)),
        "one": MeshShape.maximal(3),
    }
    shardings = Shardings(root)
    assert shardings.name_of(MESH) == "mesh"
    assert shardings.name_of(MeshShape.maximal(3)) == "one"
    assert shardings.name_of(MeshShape.of(x=2)) is None


def test_reading_an_argument_and_an_op() -> None:
    module = load(TEXT)
    shardings = Shardings(module.root)
    attribute = argument_attributes(module.main)[0]["sdy.sharding"]
    assert shardings.read(attribute) == TensorSharding.build(MESH, [["x"], "?"])
    call = module.main.body.blocks[0].operations[0]
    assert shardings.read_per_value(call.attributes["sdy.sharding"]) == (
        TensorSharding.build(MESH, [["y"], []]),
        TensorSharding.build(MeshShape.maximal(3), []),
    )


def test_each_attribute_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    root = load(TEXT).root
    parsed: list[str] = []
    parse = TensorSharding.parse

    def counted(text: str, meshes: object) -> TensorSharding:
        parsed.append(text)
        return parse(text, meshes)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(TensorSharding, "parse", counted)
    attributes._parse.cache_clear()  # What other tests have read counts as read.
    for shardings in (Shardings(root), Shardings(root)):
        function = root.regions[0].blocks[0].operations[3]
        call = function.regions[0].blocks[0].operations[0]
        shardings.read_per_value(call.attributes["sdy.sharding"])
        shardings.read(ir.Attribute.parse('#sdy.sharding<@mesh, [{"y"}, {}]>', root.context))
    assert len(parsed) == 2
    shardings = Shardings(root)
    sharding = TensorSharding.build(MESH, [["x"], []])
    assert shardings.write(sharding, "mesh") is shardings.write(sharding, "mesh")


def test_declaring_a_mesh() -> None:
    root = load("func.func @main() { return }").root
    declare_mesh(root, "mesh", MESH)
    declare_mesh(root, "other", MeshShape((("a", 4),), (3, 2, 1, 0)))
    assert [str(op) for op in mesh_ops(root)] == [
        'sdy.mesh @other = <["a"=4], device_ids=[3, 2, 1, 0]>',
        'sdy.mesh @mesh = <["x"=2, "y"=4]>',
    ]
    assert root.verify()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_shardings_survive_a_trip_through_mlir(data: st.DataObject) -> None:
    """Written, parsed by MLIR, verified by Shardy on a value of that rank, printed and read."""
    mesh = data.draw(mesh_shapes())
    sharding = data.draw(tensor_shardings(st.just(mesh), unreduced=False))
    dims = "x".join(map(str, [mesh.size] * sharding.rank)) + "x" if sharding.rank else ""
    root = load(f"func.func @main(%a: tensor<{dims}f32>) {{ return }}").root
    declare_mesh(root, "m", mesh)
    shardings = Shardings(root)
    attribute = shardings.write(sharding, "m")
    function = root.regions[0].blocks[0].operations[1]
    with root.context:
        entries = ir.DictAttr.get({"sdy.sharding": attribute})
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([entries])
    again = load(str(root))
    read = Shardings(again.root).read(argument_attributes(again.main)[0]["sdy.sharding"])
    assert read == sharding


def test_several_values_at_once() -> None:
    root = load(TEXT).root
    shardings = Shardings(root)
    both = (TensorSharding.build(MESH, [["x"], []]), TensorSharding.build(MESH, ["?"]))
    attribute = shardings.write_per_value([(s, "mesh") for s in both])
    assert str(attribute) == '#sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>, <@mesh, [{?}]>]>'
    assert shardings.read_per_value(attribute) == both


def test_an_unknown_mesh_is_refused() -> None:
    root = load(TEXT).root
    attribute = ir.Attribute.parse("#sdy.sharding<@none, [{}]>", root.context)
    with pytest.raises(ShardingError) as caught:
        Shardings(root).read(attribute)
    assert "none" in str(caught.value)


def test_inlined_meshes_are_read() -> None:
    root = load("func.func @main() { return }").root
    attribute = ir.Attribute.parse('#sdy.sharding<mesh<["x"=2, "y"=4]>, [{"x"}]>', root.context)
    assert Shardings(root).read(attribute) == TensorSharding.build(MESH, [["x"]])


def test_mhlo_shardings_are_strings() -> None:
    context = make_context()
    sharding = HloSharding.parse("{devices=[2,1,4]<=[8] last_tile_dim_replicate}")
    attribute = write_mhlo(sharding, context)
    assert str(attribute) == '"{devices=[2,1,4]<=[8] last_tile_dim_replicate}"'
    assert read_mhlo(attribute) == sharding
    with pytest.raises(ShardingError):
        read_mhlo(ir.StringAttr.get("{devices=[banana", context=context))


def as_proto(text: str) -> bytes:
    """The serialized OpSharding that XLA makes of its text."""
    by_xla = type(get_hlo_sharding_from_serialized_proto(b""))
    return by_xla.from_string(text).to_proto().SerializeToString()


@given(hlo_shardings())
def test_mhlo_shardings_may_be_protos(sharding: HloSharding) -> None:
    attribute = ir.StringAttr.get(as_proto(str(sharding)), context=make_context())
    assert read_mhlo(attribute) == sharding


@pytest.mark.parametrize(
    "text",
    [
        "{replicated}",
        "{maximal device=200}",
        "{devices=[64,40]<=[2560]}",
        '{replicated metadata={op_name="a long name, so that its length is a printable byte"}}',
        "{{replicated}, {devices=[33]<=[33]}}",
        "{replicated shard_as 40}",
    ],
)
def test_protos_that_are_nearly_text(text: str) -> None:
    attribute = ir.StringAttr.get(as_proto(text), context=make_context())
    assert read_mhlo(attribute) == HloSharding.parse(text)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x08\x63", "no type 99"),
        (b"\x08\x03\x1a\xff", "a number without an end"),
        (b"\xff", "without an end"),
    ],
)
def test_bytes_that_are_no_proto(data: bytes, said: str) -> None:
    with pytest.raises(ShardingError, match=said) as caught:
        read_mhlo(ir.StringAttr.get(data, context=make_context()))
    assert caught.value.slug == "syntax"


def test_what_is_no_string_is_refused() -> None:
    attribute = ir.Attribute.parse("3 : i32", make_context())
    with pytest.raises(ShardingError, match="a sharding is a string, not 3 : i32") as caught:
        read_mhlo(attribute)
    assert caught.value.slug == "syntax"


def test_device_counts() -> None:
    root = load("func.func @main() { return }").root
    assert num_partitions(root) is None
    set_num_partitions(root, 8)
    assert num_partitions(root) == 8
    assert "mhlo.num_partitions = 8 : i32" in str(root)
