"""Names that MLIR has to escape, which XLA cannot read back, are others for XLA alone."""

import pytest

from shardpass.canon import MeshShape
from shardpass.diagnostics import ShardingError
from shardpass.mlir import argument_attributes, load, meshes_of
from shardpass.passes import run_pipeline
from shardpass.passes.annotate import Annotate
from shardpass.report import build_report
from shardpass.runtime import compile_module
from tests.passes.helpers import attribute_of, shardings

#: Each is escaped in another way.
ODD_NAMES = ["дата", 'a"b', "a\\b", "a\nb", "a\x01b", "\N{GRINNING FACE}", '", "']
TYPE = "(tensor<8x8xf32>) -> tensor<8x8xf32>"
PLAIN = f"""\
func.func @main(%a: tensor<8x8xf32> {{jax.arg_info = "A"}}) -> tensor<8x8xf32> {{
  %0 = stablehlo.custom_call @acme(%a) {{backend_config = "A"}} : {TYPE}
  return %a : tensor<8x8xf32>
}}
"""
MANUAL = """\
sdy.mesh @"МЕШ" = <["ОСЬ"=2, "b"=4]>
func.func @main(%x: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@"МЕШ", [{"ОСЬ"}, {?}]>})
    -> tensor<8x8xf32> {
  %0 = sdy.manual_computation(%x) in_shardings=[<@"МЕШ", [{"ОСЬ"}, {}]>]
      out_shardings=[<@"МЕШ", [{"ОСЬ"}, {}]>] manual_axes={"ОСЬ"} (%y: tensor<4x8xf32>) {
    %1 = stablehlo.add %y, %y : tensor<4x8xf32>
    sdy.return %1 : tensor<4x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
"""


def annotated(name: str, text: str = PLAIN):
    mesh = MeshShape(((name, 2), ("axis_0", 4)))
    return run_pipeline(text, Annotate(rules=[("", (name,))], mesh=mesh)).module


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_axis_gets_a_name_that_nothing_else_has(name: str) -> None:
    module = annotated(name)
    finished = run_pipeline(module, "sp-prepare-for-xla").module
    assert meshes_of(finished.root) == {"mesh": MeshShape((("axis_1", 2), ("axis_0", 4)))}
    assert shardings(finished) == ['<@mesh, [{"axis_1"}, {}]>']
    assert meshes_of(module.root)["mesh"].names == (name, "axis_0")


def test_strings_of_the_user_stay() -> None:
    text = PLAIN.replace('"A"', '"\\D0\\B4"')
    finished = run_pipeline(annotated("д", text), "sp-prepare-for-xla").module
    assert attribute_of(finished, "jax.arg_info") == ['"\\D0\\B4"']
    assert 'backend_config = "\\D0\\B4"' in finished.text()
    assert shardings(finished) == ['<@mesh, [{"axis_1"}, {}]>']


def test_names_that_need_no_escape_stay() -> None:
    text = annotated("a b,c").text()
    assert run_pipeline(load(text), "sp-prepare-for-xla").module.text() == text


def test_everything_that_names_an_axis_or_a_mesh_follows() -> None:
    finished = run_pipeline(MANUAL, "sp-prepare-for-xla").module
    text = finished.text(debug_info=False)
    assert 'sdy.mesh @mesh_0 = <["axis_0"=2, "b"=4]>' in text
    assert 'in_shardings=[<@mesh_0, [{"axis_0"}, {}]>]' in text
    assert 'out_shardings=[<@mesh_0, [{"axis_0"}, {}]>] manual_axes={"axis_0"}' in text
    assert shardings(finished) == ['<@mesh_0, [{"axis_0"}, {?}]>']
    assert "\\D0" not in text


def test_an_empty_mesh_with_an_odd_name_is_merged() -> None:
    text = 'sdy.mesh @"no axes" = <[]>\n' + MANUAL.replace(
        '[{"ОСЬ"}, {?}]>})',
        '[{"ОСЬ"}, {?}]>}, %k: tensor<4xf32> {sdy.sharding = #sdy.sharding<@"no axes", [{}]>})',
    )
    finished = run_pipeline(text, "sp-prepare-for-xla").module
    assert list(meshes_of(finished.root)) == ["mesh_1"]
    assert str(argument_attributes(finished.main)[1]["sdy.sharding"]) == (
        "#sdy.sharding<@mesh_1, [{}]>"
    )


@pytest.mark.parametrize("name", ODD_NAMES)
def test_xla_takes_it(name: str) -> None:
    text = PLAIN.replace(
        f'  %0 = stablehlo.custom_call @acme(%a) {{backend_config = "A"}} : {TYPE}\n', ""
    )
    executable = compile_module(annotated(name, text), devices=8)
    assert executable.argument_layouts[0].shard_shape == (4, 8)


def test_xla_takes_a_manual_computation() -> None:
    assert compile_module(load(MANUAL), devices=8).argument_layouts[0].shard_shape == (4, 8)


@pytest.mark.parametrize(
    ("name", "shown"), [("дата", "дата"), ('a"b', 'a"b'), ("a\\b", "a\\b"), ("a\nb", "a\\0Ab")]
)
def test_a_report_shows_the_name_as_it_was_given(name: str, shown: str) -> None:
    report = build_report(annotated(name))
    assert report.arguments[0].spec == f'[{{"{shown}"}}, {{}}]'


def test_half_of_a_surrogate_pair_is_no_name() -> None:
    with pytest.raises(ShardingError) as caught:
        MeshShape((("a\ud800", 2),))
    assert caught.value.slug == "bad-mesh"
    assert caught.value.diagnostic.message == (
        "the name of mesh axis 'a\\ud800' (size 2) has half of a surrogate pair in it, which UTF-8 "
        "cannot say"
    )
