"""``sp-annotate``: what rules put onto arguments, results and ops, and what is said of it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import shardpass
from shardpass.canon import MeshShape
from shardpass.diagnostics import ShardingError
from shardpass.mlir import load, meshes_of, num_partitions
from shardpass.partition_rules import PartitionRules, Rule
from shardpass.passes import run_pipeline
from tests.passes.annotating import EVERY, MESH, TEXT, P, annotate
from tests.passes.helpers import attribute_of, faults, said, shardings

ALL = [("params.w$", P(None, "model")), (r"params\.b", P("model")), ("^batch$", P("data"))]


def test_arguments_and_results() -> None:
    result = annotate(TEXT, [*ALL, (r"^result\.0$", P("data", "model")), ("count", P())])
    assert shardings(result.module) == [
        '<@mesh, [{}, {"model"}]>',
        '<@mesh, [{"model"}]>',
        "<@mesh, []>",
        '<@mesh, [{"data"}, {}]>',
    ]
    assert shardings(result.module, results=True) == ['<@mesh, [{"data"}, {"model"}]>', None]
    assert meshes_of(result.module.root) == {"mesh": MESH}
    assert num_partitions(result.module.root) == 8
    assert result.diagnostics == ()


def test_a_regex_is_searched_in_the_raw_spelling_too() -> None:
    result = annotate(TEXT, [(r"\['w'\]", P("data")), ("", P())])
    assert shardings(result.module)[0] == '<@mesh, [{"data"}, {}]>'


def test_the_first_rule_that_matches_wins() -> None:
    result = annotate(TEXT, [("w", P("data")), ("w", P("model")), ("", P())])
    assert shardings(result.module)[0] == '<@mesh, [{"data"}, {}]>'


@pytest.mark.parametrize(
    "mesh",
    [
        MESH,
        {"data": 2, "model": 4},
        jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model")),
        jax.sharding.AbstractMesh((2, 4), ("data", "model")),
        shardpass.make_mesh((2, 4), ("data", "model")),
    ],
)
@pytest.mark.parametrize("spec", [PartitionSpec(None, "model"), shardpass.P(None, "model")])
def test_jaxs_own_objects(mesh: Any, spec: Any) -> None:
    result = annotate(TEXT, [("w", spec), ("", P())], mesh=mesh)
    assert shardings(result.module)[0] == '<@mesh, [{}, {"model"}]>'
    assert meshes_of(result.module.root) == {"mesh": MESH}


def test_a_mesh_with_permuted_devices() -> None:
    mesh = MeshShape((("data", 2), ("model", 2)), (0, 2, 1, 3))
    result = annotate(TEXT, [*ALL, ("", P())], mesh=mesh)
    assert meshes_of(result.module.root) == {"mesh": mesh}
    assert num_partitions(result.module.root) == 4


def test_devices_of_a_jax_mesh_are_numbered_by_their_place_in_it() -> None:
    """As JAX does: the order is said where the program is given its devices."""
    devices = np.array(jax.devices()[:4])[[0, 2, 1, 3]].reshape(2, 2)
    result = annotate(TEXT, [*ALL, EVERY], mesh=jax.sharding.Mesh(devices, ("data", "model")))
    assert meshes_of(result.module.root) == {"mesh": MeshShape.of(data=2, model=2)}


def test_a_mesh_given_stands_in_for_the_one_of_the_rules() -> None:
    result = annotate(TEXT, PartitionRules(ALL, {"data": 8, "model": 1}))
    assert meshes_of(result.module.root) == {"mesh": MESH}


def test_the_mesh_of_the_rules() -> None:
    result = annotate(TEXT, PartitionRules(ALL, {"model": 4, "data": 2}), mesh=None)
    assert meshes_of(result.module.root) == {"mesh": MeshShape.of(model=4, data=2)}


def test_no_mesh_and_no_rules() -> None:
    (fault,) = faults(TEXT, "sp-annotate", rules=ALL)
    assert (fault.slug, fault.message) == ("bad-rules", "no mesh to annotate on")
    (fault,) = faults(TEXT, "sp-annotate", mesh=MESH)
    assert (fault.slug, fault.message) == ("bad-rules", "sp-annotate has no rules")


def test_an_equal_mesh_of_the_module_is_used() -> None:
    text = TEXT.replace("  func.func", '  sdy.mesh @grid = <["data"=2, "model"=4]>\n  func.func')
    result = annotate(text, [*ALL, ("", P())])
    assert list(meshes_of(result.module.root)) == ["grid"]
    assert shardings(result.module)[1] == '<@grid, [{"model"}]>'


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        ('sdy.mesh @mesh = <["z"=8]>', "mesh_0"),
        ('sdy.mesh @mesh = <["z"=8]>\n  sdy.mesh @mesh_0 = <["y"=8]>', "mesh_1"),
        ("func.func private @mesh() { return }", "mesh_0"),
        ('sdy.mesh @other = <["z"=8]>', "mesh"),
    ],
)
def test_the_mesh_takes_a_free_name(declared: str, name: str) -> None:
    text = TEXT.replace("  func.func @main", f"  {declared}\n  func.func @main")
    result = annotate(text, [*ALL, ("", P())])
    assert meshes_of(result.module.root)[name] == MESH
    assert shardings(result.module)[1] == f'<@{name}, [{{"model"}}]>'


def test_rules_that_matched_nothing_and_arguments_without_a_rule() -> None:
    result = annotate(TEXT, [("params.w$", P()), ("nothing", P("data")), Rule(op="x.y", spec=[])])
    assert said(result.diagnostics) == [
        ("warning", "unused-rule", 'rule 2: match = "nothing", spec = ["data"] matched nothing'),
        ("warning", "unused-rule", 'rule 3: op = "x.y", spec = [] matched nothing'),
        ("warning", "unmatched", "no rule matches 3 arguments: params.b, count, batch"),
    ]
    assert shardings(result.module)[1:] == [None, None, None]


def test_many_arguments_without_a_rule_are_counted() -> None:
    arguments = ", ".join(f"%a{i}: tensor<4xf32>" for i in range(12))
    result = annotate(f"func.func @main({arguments}) {{ return }}", [("arg11", P())])
    (warning,) = result.diagnostics
    assert warning.message == (
        "no rule matches 11 arguments: arg0, arg1, arg2, arg3, arg4, arg5, arg6, arg7 and 3 more"
    )


def test_a_dimension_that_does_not_divide() -> None:
    text = TEXT.replace("16xf32", "18xf32")
    found = faults(text, "sp-annotate", rules=[*ALL, ("", P())], mesh=MESH)
    assert said(found) == [
        (
            "error",
            "indivisible",
            'argument 0 ("params.w"), dimension 1: 18 elements into 4 pieces',
        ),
        ("error", "indivisible", 'argument 1 ("params.b"), dimension 0: 18 elements into 4 pieces'),
    ]
    assert [d.path for d in found] == ["params.w", "params.b"]
    assert [str(d.location) for d in found] == ["<text>:2:3", "<text>:2:3"]


def test_a_dimension_that_does_not_divide_may_stay_whole() -> None:
    text = TEXT.replace("16xf32", "18xf32")
    result = annotate(text, [*ALL, ("", P())], "sp-annotate{indivisible=replicate}")
    assert shardings(result.module)[:2] == ["<@mesh, [{}, {}]>", "<@mesh, [{}]>"]
    kept = [d for d in result.diagnostics if d.slug == "replicated"]
    assert [d.path for d in kept] == ["params.w", "params.b"]
    assert all("18" in d.message for d in kept)


def test_conflicts_are_refused_when_asked() -> None:
    rules = [("w", P("data")), ("params", P("model")), ("", P())]
    found = faults(TEXT, "sp-annotate{conflicts=error}", rules=rules, mesh=MESH)
    assert [(d.slug, d.path) for d in found] == [
        ("rule-conflict", "params.w"),
        ("rule-conflict", "params.b"),
        ("rule-conflict", "batch"),
    ][: len(found)]
    assert found[0].message.startswith('argument 0 ("params.w"): rules 1 and 2 both hold')


@pytest.mark.parametrize(
    "option", ["conflicts=last", "indivisible=pad", "mesh=data", "mesh=data=0"]
)
def test_bad_options(option: str) -> None:
    (fault,) = faults(TEXT, f"sp-annotate{{{option}}}", rules=ALL)
    assert fault.slug in ("bad-option", "bad-mesh", "syntax")
    assert fault.excerpt is not None


def test_options_in_the_text(tmp_path: Any) -> None:
    file = tmp_path / "r.toml"
    file.write_text("[[rule]]\nmatch = 'w'\nspec = ['data']\n[[rule]]\nmatch = ''\nspec = []\n")
    result = run_pipeline(TEXT, f"sp-annotate{{rules={file} mesh=data=4,model=2}}")
    assert shardings(result.module)[0] == '<@mesh, [{"data"}, {}]>'
    assert meshes_of(result.module.root)["mesh"] == MeshShape.of(data=4, model=2)


@pytest.mark.parametrize(
    ("spec", "shape", "slug"),
    [
        (P("none"), "8x16xf32", "unknown-axis"),
        (P("data", "data"), "8x16xf32", "duplicate-axis"),
        (P(None, None, "data"), "8x16xf32", "rank-mismatch"),
        (P("model"), "19x16xf32", "indivisible"),
    ],
)
def test_bad_specs(spec: Any, shape: str, slug: str) -> None:
    text = f'func.func @main(%a: tensor<{shape}> loc("w")) {{ return }}'
    found = faults(text, "sp-annotate", rules=[("w", spec)], mesh=MESH)
    assert [d.slug for d in found] == [slug]


def test_scalars() -> None:
    """A sweeping regex leaves a scalar whole; a rule that names it cannot cut it."""
    assert shardings(annotate(TEXT, [("", P("data"))]).module)[2] == "<@mesh, []>"
    (fault,) = faults(TEXT, "sp-annotate", rules=[("^count$", P("data")), ("", P())], mesh=MESH)
    assert (fault.slug, fault.path) == ("scalar-spec", "count")


def test_an_axis_that_another_entry_has_is_reported_once_for_each_rule() -> None:
    rules = PartitionRules(
        [("batch|params.w$", ["a", "data"]), ("b$", ["a"]), ("", ["c", "c"])],
        logical={"a": "data", "c": "model"},
    )
    text = TEXT.replace('loc("count")', 'loc("lr")')
    result = annotate(text, rules)
    assert shardings(result.module) == [
        '<@mesh, [{"data"}, {}]>',
        '<@mesh, [{"data"}]>',
        "<@mesh, []>",
        '<@mesh, [{"data"}, {}]>',
    ]
    assert said(result.diagnostics) == [
        (
            "warning",
            "axis-taken",
            'rule 1, dimension 1: "data" cuts nothing, another entry of the spec has the axis',
        ),
        (
            "remark",
            "axis-taken",
            'rule 3, dimension 1: "c" (mesh axis model) cuts nothing, another entry of the '
            "spec has the axis",
        ),
    ]


def test_dynamic_shapes() -> None:
    text = TEXT.replace("%arg3: tensor<4x8xf32>", "%arg3: tensor<?x8xf32>").replace(
        "(tensor<4x8xf32>,", "(tensor<?x8xf32>,"
    )
    (fault,) = faults(text, "sp-annotate", rules=[("batch", P("data")), ("", P())], mesh=MESH)
    assert (fault.slug, fault.path) == ("dynamic-shape", "batch")


ANNOTATED = TEXT.replace(
    "tensor<16xf32> loc(\"params['b']", "tensor<16xf32> {OLD} loc(\"params['b']"
)


def test_an_argument_keeps_the_sharding_that_it_has() -> None:
    """And the rules for it did match something."""
    text = ANNOTATED.replace("OLD", 'sdy.sharding = #sdy.sharding<@m, [{"z"}]>').replace(
        "  func", '  sdy.mesh @m = <["z"=2]>\n  func'
    )
    result = annotate(text, [("params.b", P("model")), ("w|count|batch", P())])
    assert shardings(result.module)[1] == '<@m, [{"z"}]>'
    assert said(result.diagnostics) == [
        (
            "warning",
            "mesh-mismatch",
            "the module has a mesh already, @m (z=2), and the rules are for (data=2, model=4): "
            "propagation stops between the two",
        ),
        (
            "warning",
            "already-annotated",
            'argument 1 ("params.b") keeps the sharding that it has, [{"z"}]',
        ),
    ]
    assert result.diagnostics[1].notes == (
        "it is on mesh z=2",
        'rule 1: match = "params.b", spec = ["model"] asks for [{"model"}] on mesh data=2, model=4',
    )


def test_a_sharding_that_the_rules_ask_for_anyway_is_kept_in_silence() -> None:
    text = ANNOTATED.replace("OLD", 'sdy.sharding = #sdy.sharding<@m, [{"model"}]>').replace(
        "  func", '  sdy.mesh @m = <["data"=2, "model"=4]>\n  func'
    )
    result = annotate(text, [("params.b", P("model")), ("w|count|batch", P())])
    assert [d.severity.value for d in result.diagnostics] == ["remark"]
    assert shardings(result.module)[1] == '<@m, [{"model"}]>'


def test_an_argument_with_gspmds_notation_is_refused() -> None:
    text = ANNOTATED.replace("OLD", 'mhlo.sharding = "{replicated}"')
    (fault,) = faults(text, "sp-annotate", rules=[("", P())], mesh=MESH)
    assert (fault.slug, fault.path) == ("already-annotated", "params.b")
    assert fault.help == "remove the old annotations first: sp-strip,sp-annotate"
    result = annotate(text, [("", P())], "sp-strip,sp-annotate")
    assert attribute_of(result.module, "mhlo.sharding") == [None] * 4


def test_the_empty_mesh_of_typed_keys_is_no_annotation() -> None:
    def step(state: Any) -> Any:
        return jax.random.split(state["key"])[0], state["w"] + 1

    state = {"key": jax.random.key(0), "w": jnp.zeros((8, 4))}
    lowered = load(jax.jit(step).lower(state))
    result = annotate(lowered, [("w", P("data")), ("key|result", P())])
    assert shardings(result.module) == ["<@mesh, [{}]>", '<@mesh, [{"data"}, {}]>']
    assert [d.slug for d in result.diagnostics] == []


def donated(rules: Any, options: str = "") -> Any:
    def step(state: Any, x: jax.Array) -> Any:
        return x.sum(), jax.tree.map(lambda leaf: leaf + 1, state)

    state = {"a": jnp.zeros((4, 8)), "b": jnp.zeros(8)}
    lowered = jax.jit(step, donate_argnums=0).lower(state, jnp.zeros(5))
    return annotate(lowered, rules, "sp-annotate" + options)


def test_a_result_takes_the_sharding_of_its_donated_argument() -> None:
    result = donated([(r"^state\.a", P("data")), (r"^state\.b", P("model")), ("^x", P())])
    assert shardings(result.module, results=True) == [
        None,
        '<@mesh, [{"data"}, {}]>',
        '<@mesh, [{"model"}]>',
    ]
    assert result.diagnostics == ()


def test_a_rule_for_the_result_comes_first() -> None:
    rules = [(r"^state", P("data")), (r"^result\.1\.a", P(None, "data")), ("^x", P())]
    result = donated(rules)
    assert shardings(result.module, results=True)[1:] == [
        '<@mesh, [{}, {"data"}]>',
        '<@mesh, [{"data"}]>',
    ]
    (found,) = [d for d in result.diagnostics if d.slug == "alias-layout"]
    assert (found.severity.value, found.path) == ("warning", "result.1.a")


def test_a_result_in_a_donated_buffer_of_another_size_is_refused() -> None:
    """XLA would fail with an INTERNAL error."""
    rules = [(r"^state", P("data")), (r"^result\.1\.b", P("model")), ("^x", P())]
    with pytest.raises(ShardingError) as caught:
        donated(rules)
    found = caught.value.diagnostic
    assert (found.slug, found.path) == ("alias-layout", "result.1.b")
    assert found.message.endswith("and their shards differ in size: 4 and 2")


def test_a_result_of_another_type_takes_nothing() -> None:
    text = (
        "func.func @main(%a: tensor<8x4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<32xf32> {\n"
        "  %0 = stablehlo.reshape %a : (tensor<8x4xf32>) -> tensor<32xf32>\n"
        "  return %0 : tensor<32xf32>\n}\n"
    )
    result = annotate(text, [("arg0", P("data"))])
    assert shardings(result.module) == ['<@mesh, [{"data"}, {}]>']
    assert shardings(result.module, results=True) == [None]


def test_tokens_are_passed_over() -> None:
    text = (
        "func.func @main(%t: !stablehlo.token, %a: tensor<8xf32>) -> !stablehlo.token "
        "{ return %t : !stablehlo.token }"
    )
    result = annotate(text, [("", P("data"))])
    assert shardings(result.module) == [None, '<@mesh, [{"data"}]>']
    assert result.diagnostics == ()


def test_every_fault_in_one_run() -> None:
    rules = [
        ("w", P(None, None, "data")),
        (r"\.b", P("data", "model")),
        ("batch", P("model")),
        EVERY,
    ]
    text = TEXT.replace("4x8xf32", "6x8xf32")
    found = faults(
        text.replace("-> tensor<4x16xf32> loc", "-> tensor<6x16xf32> loc")
        .replace("(tensor<4x16xf32> {", "(tensor<6x16xf32> {")
        .replace("%0 : tensor<4x16", "%0 : tensor<6x16")
        .replace("%arg2 : tensor<4x16", "%arg2 : tensor<6x16"),
        "sp-annotate",
        rules=rules,
        mesh=MESH,
    )
    assert [(d.slug, d.path) for d in found] == [
        ("rank-mismatch", "params.w"),
        ("rank-mismatch", "params.b"),
        ("indivisible", "batch"),
    ]
