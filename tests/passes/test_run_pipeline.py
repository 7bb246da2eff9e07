"""Pipelines from Python: what comes out, what stays as it was, and who may fail how."""

import subprocess
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func, stablehlo
from jax.sharding import PartitionSpec

from shardpass.canon import MeshShape
from shardpass.diagnostics import ShardingError, Sink
from shardpass.mlir import collect, load, locate
from shardpass.passes import Pass, build, builtin_passes, option, run_pipeline
from shardpass.passes.annotate import Annotate
from shardpass.passes.propagate import Propagate
from shardpass.passes.strip import Strip
from tests.passes.helpers import MESH, faults, said, shardings

TEXT = (
    MESH
    + """\
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> tensor<8x8xf32> {
  %0 = stablehlo.add %a, %a : tensor<8x8xf32>
  %1 = stablehlo.multiply %0, %a : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
"""
)

DYNAMIC = """\
func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.abs %a : tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""

ran: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


@dataclass(frozen=True, kw_only=True)
class CountOps(Pass):
    """Count the ops of one kind.

    A second paragraph, which is not part of the summary.
    """

    name: ClassVar[str] = "acme-count-ops"

    kind: str = option("stablehlo.add", help="the op")
    most: int = option(10, help="refuse more")
    scale: float = option(1.0, help="a factor")
    loud: bool = option(False, help="say so")

    def run(self, root: ir.Operation, sink: Sink) -> None:
        ran.append(f"{self.kind} {self.most} {self.scale} {self.loud}")
        for op in collect(root, stablehlo.AddOp):
            if self.loud:
                sink.remark("acme/counted", f"found {op.operation.name}", location=locate(op))
            if self.most == 0:
                sink.error("acme/too-many", "there is an add", location=locate(op))


@dataclass(frozen=True, kw_only=True)
class Raise(Pass):
    """Raise what one is told to."""

    name: ClassVar[str] = "acme-raise"
    what: BaseException

    def run(self, root: ir.Operation, sink: Sink) -> None:
        ran.append("raise")
        for op in collect(root, stablehlo.MulOp):
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
        raise self.what


@dataclass(frozen=True, kw_only=True)
class Break(Pass):
    """Leave the function without its return."""

    name: ClassVar[str] = "acme-break"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        ran.append("break")
        collect(root, func.ReturnOp)[0].erase()


def test_the_callers_module_stays_as_it_was() -> None:
    module = load(TEXT)
    before = module.text(debug_info=True)
    result = run_pipeline(module, "sp-strip")
    assert module.text(debug_info=True) == before
    assert result.module.ir is not module.ir
    assert "sdy" not in result.module.text()
    assert result.diagnostics == ()


def test_the_callers_module_stays_as_it_was_when_a_pass_fails_half_way() -> None:
    module = load(TEXT)
    before = module.text(debug_info=True)
    for pipeline in (Raise(what=RuntimeError("no")), Break(), [Strip, CountOps(most=0)]):
        with pytest.raises(Exception, match=r"no|terminator|there is an add|empty block"):
            run_pipeline(module, pipeline)
        assert module.text(debug_info=True) == before


def test_in_place() -> None:
    module = load(TEXT)
    result = run_pipeline(module, "sp-strip", in_place=True)
    assert result.module is module
    assert "sdy" not in module.text()


def test_in_place_on_an_ir_module() -> None:
    module = load(TEXT)
    run_pipeline(module.ir, "sp-strip", in_place=True)
    assert "sdy" not in str(module.ir)


@pytest.mark.parametrize(
    "pipeline",
    [
        "acme-count-ops",
        "acme-count-ops{}",
        CountOps,
        CountOps(),
        [CountOps],
        ["acme-count-ops"],
        "builtin.module(acme-count-ops)",
        "module(acme-count-ops)",
    ],
)
def test_ways_to_name_a_pass_of_ones_own(pipeline: Any) -> None:
    run_pipeline(TEXT, pipeline, passes=[CountOps])
    assert ran == ["stablehlo.add 10 1.0 False"]


def test_texts_and_passes_in_one_sequence() -> None:
    steps = build(["cse,sp-strip", CountOps(most=3), Strip, "func.func(cse)"])
    assert steps == ["cse", Strip(), CountOps(most=3), Strip(), "func.func(cse)"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", "stablehlo.add 10 1.0 False"),
        ("{loud}", "stablehlo.add 10 1.0 True"),
        ("{loud=true}", "stablehlo.add 10 1.0 True"),
        ("{loud=No most=3}", "stablehlo.add 3 1.0 False"),
        ("{kind='a b' scale=2.5e3}", "a b 10 2500.0 False"),
        ("{most=-1 scale=2 loud=1}", "stablehlo.add -1 2.0 True"),
    ],
)
def test_options_take_the_type_of_their_default(options: str, expected: str) -> None:
    run_pipeline(TEXT, f"acme-count-ops{options}", passes=[CountOps])
    assert ran == [expected]


@pytest.mark.parametrize(
    ("options", "message", "column", "remedy"),
    [
        ("{most=x}", "option \"most\" of acme-count-ops: 'x' is not a whole number", 16, None),
        ("{most=1.5}", "option \"most\" of acme-count-ops: '1.5' is not a whole number", 16, None),
        ("{scale=x}", "option \"scale\" of acme-count-ops: 'x' is not a number", 16, None),
        (
            "{loud=maybe}",
            "option \"loud\" of acme-count-ops: 'maybe' is not true or false",
            16,
            None,
        ),
        ("{most}", 'option "most" of acme-count-ops: needs a value', 16, None),
        ("{kind=a kind=b}", 'option "kind" of acme-count-ops stands twice', 23, None),
        ("{kinds=a}", 'acme-count-ops has no option "kinds"', 16, 'did you mean "kind"?'),
        ("{zzz}", 'acme-count-ops has no option "zzz"', 16, "it has kind, most, scale, loud"),
    ],
)
def test_options_that_cannot_be(
    options: str, message: str, column: int, remedy: str | None
) -> None:
    with pytest.raises(ShardingError) as caught:
        build(f"acme-count-ops{options}", [CountOps])
    fault = caught.value.diagnostic
    assert (fault.slug, fault.message, fault.help) == ("bad-option", message, remedy)
    assert fault.excerpt is not None
    assert fault.excerpt.column == column


@pytest.mark.parametrize(
    ("text", "slug", "message", "column", "remedy"),
    [
        (
            "cse,sp-anotate",
            "unknown-pass",
            'there is no pass "sp-anotate"',
            5,
            'did you mean "sp-annotate"?',
        ),
        (
            "sdy-propagation-pipelin",
            "unknown-pass",
            'there is no pass "sdy-propagation-pipelin"',
            1,
            'did you mean "sdy-propagation-pipeline"?',
        ),
        (
            "qqq",
            "unknown-pass",
            'there is no pass "qqq"',
            1,
            "shardpass opt --list-passes shows them all",
        ),
        ("func.func(cse,qqq)", "unknown-pass", 'there is no pass "qqq"', 15, None),
        (
            "func.func(sdy-propagation-pipeline)",
            "bad-pipeline",
            '"sdy-propagation-pipeline" runs on the whole module, not under func.func',
            11,
            "write it without the nesting; shardpass nests passes itself",
        ),
        (
            "func.func(sp-strip)",
            "bad-pipeline",
            '"sp-strip" runs on the whole module, not under func.func',
            11,
            "write it without the nesting; shardpass nests passes itself",
        ),
        (
            "cse,func.fucn(cse)",
            "bad-pipeline",
            'there is no op "func.fucn" to run passes on',
            5,
            'did you mean "func.func"?',
        ),
        (
            "tensor.nothing(cse)",
            "bad-pipeline",
            'there is no op "tensor.nothing" to run passes on',
            1,
            "write the passes without the nesting; shardpass nests them itself",
        ),
        ("sp-strip{a=b}", "bad-option", 'sp-strip has no option "a"', 10, "it has none"),
    ],
)
def test_pipelines_that_cannot_be(
    text: str, slug: str, message: str, column: int, remedy: str | None
) -> None:
    with pytest.raises(ShardingError) as caught:
        build(text)
    fault = caught.value.diagnostic
    assert (fault.slug, fault.message) == (slug, message)
    assert remedy is None or fault.help == remedy
    assert fault.excerpt is not None
    assert fault.excerpt.column == column


@pytest.mark.parametrize(
    ("text", "slug", "message"),
    [
        (
            "func.func(sdy-close-shardings)",
            "bad-pipeline",
            "MLIR refuses this nesting",
        ),
        (
            "builtin.module(func.func(symbol-dce,sdy-import-pipeline))",
            "bad-pipeline",
            '"sdy-import-pipeline" runs on the whole module, not under func.func',
        ),
        ("cse{no-such=1}", "bad-option", "cse does not take these options"),
        ("sdy-basic-propagate{conservative-propagation=9}", "bad-option", "sdy-basic-propagate"),
    ],
)
def test_native_passes_that_mlir_refuses(text: str, slug: str, message: str) -> None:
    """Said before anything runs, and without an abort."""
    with pytest.raises(ShardingError) as caught:
        build(text)
    fault = caught.value.diagnostic
    assert fault.slug == slug
    assert fault.message.startswith(message)


def test_native_passes_are_nested_where_they_run() -> None:
    steps = build("sdy-insert-explicit-reshards,canonicalize{max-iterations=3},symbol-dce")
    assert steps == [
        "func.func(sdy-insert-explicit-reshards)",
        "canonicalize{max-iterations=3}",
        "symbol-dce",
    ]


def test_adjacent_passes_on_functions_are_nested_together() -> None:
    """As mlir-opt does, however they were named: as flags, in a text, nested or not."""
    steps = build(
        ["sdy-drop-sharding-rules", "func.func(cse,canonicalize{max-iterations=3})", "sp-strip"]
    )
    nested = "func.func(sdy-drop-sharding-rules,cse,canonicalize{max-iterations=3})"
    assert steps == [nested, Strip()]
    steps = build("sdy-drop-sharding-rules,cse,sdy-sink-data-flow-edges,func.func(func.func(cse))")
    assert steps == [
        "func.func(sdy-drop-sharding-rules)",
        "cse",
        "func.func(sdy-sink-data-flow-edges,func.func(cse))",
    ]
    run_pipeline(TEXT, steps[:2])


@pytest.mark.parametrize("where", ["seen", "failed"])
def test_the_pass_manager_can_be_instrumented(
    where: str, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def instrument(manager: Any) -> None:
        seen.append(str(manager))
        manager.enable_timing()

    passes = ["cse", CountOps(most=0 if where == "failed" else 9)]
    if where == "failed":
        with pytest.raises(ShardingError):
            run_pipeline(TEXT, passes, instrument=instrument)
    else:
        run_pipeline(TEXT, passes, instrument=instrument)
    assert seen == ["builtin.module(cse,acme-count-ops)"]
    # MLIR prints it when the manager goes, and an error must not keep that.
    assert "acme-count-ops" in capfd.readouterr().err


def test_an_exception_says_in_which_pass_it_was_raised() -> None:
    with pytest.raises(KeyError) as caught:
        run_pipeline(TEXT, ["cse", Raise(what=KeyError("k"))])
    assert caught.value.__notes__ == ["raised in acme-raise"]


@pytest.mark.parametrize("pipeline", [3, [3], [None], int, [int]])
def test_what_is_not_a_pass(pipeline: Any) -> None:
    with pytest.raises(ShardingError) as caught:
        run_pipeline(TEXT, pipeline)
    assert caught.value.slug == "abstract-type"


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyError("k"), KeyboardInterrupt()])
def test_an_exception_of_a_pass_leaves_with_its_own_type(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        run_pipeline(TEXT, [Raise(what=error), CountOps])
    assert caught.value is error or caught.value.args == error.args
    assert ran == ["raise"]


def test_a_pass_may_raise_a_sharding_error() -> None:
    error = ShardingError("not-supported", "not this one", help="another")
    found = faults(TEXT, [CountOps(loud=True), Raise(what=error), CountOps])
    assert said(found) == [
        ("remark", "acme/counted", "found stablehlo.add"),
        ("error", "not-supported", "not this one"),
    ]
    assert ran == ["stablehlo.add 10 1.0 True", "raise"]


def test_a_reported_error_ends_the_pipeline_behind_its_pass() -> None:
    found = faults(TEXT, [CountOps(most=0, loud=True), CountOps, "sp-strip"])
    assert [(d.slug, str(d.location)) for d in found] == [
        ("acme/counted", "<text>:4:8"),
        ("acme/too-many", "<text>:4:8"),
    ]
    assert found[1].excerpt is not None
    assert found[1].excerpt.text == "  %0 = stablehlo.add %a, %a : tensor<8x8xf32>"
    assert ran == ["stablehlo.add 0 1.0 True"]


def test_remarks_and_warnings_come_back_placed() -> None:
    result = run_pipeline(load(TEXT, name="step.mlir"), CountOps(loud=True))
    assert said(result.diagnostics) == [("remark", "acme/counted", "found stablehlo.add")]
    assert str(result.diagnostics[0].location) == "step.mlir:4:8"


def test_the_verifier_runs_behind_each_pass() -> None:
    found = faults(TEXT, [Break, CountOps])
    assert [d.slug for d in found] == ["mlir"]
    assert ran == ["break"]


def test_the_verifier_can_be_left_out() -> None:
    """What the next pass does then is its own business: here it looks, and nothing more."""
    module = load(TEXT)
    run_pipeline(module, [Break, CountOps], in_place=True, verify_each=False)
    assert ran == ["break", "stablehlo.add 10 1.0 False"]


def test_warnings_of_native_passes_are_heard() -> None:
    """Shardy warns of an op that its registry does not know, once in the life of a process."""
    text = TEXT.replace("stablehlo.add %a, %a", "chlo.acos %a").replace(
        ": tensor<8x8xf32>\n  %1", ": tensor<8x8xf32> -> tensor<8x8xf32>\n  %1"
    )
    script = (
        "from shardpass.passes import run_pipeline\n"
        f"for found in run_pipeline({text!r}, 'sdy-propagation-pipeline').diagnostics:\n"
        "    print(found.severity.value, found.slug, found.location, end=' ')\n"
        "    print('chlo.acos' in found.message)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.stdout == "warning mlir <text>:4:8 True\n"


def test_errors_of_native_passes_are_heard() -> None:
    (found,) = faults(DYNAMIC, "sp-propagate")
    assert found.slug == "mlir"
    assert "static shape" in found.message


def test_nothing_is_printed_by_mlir(capfd: pytest.CaptureFixture[str]) -> None:
    faults(DYNAMIC, "sp-propagate")
    faults(TEXT, [Break])
    assert capfd.readouterr() == ("", "")


def test_mesh_and_rules_reach_every_pass_that_has_none() -> None:
    rules = [("a", PartitionSpec(None, "y"))]
    text = TEXT.replace(' {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}', "")
    named = text.replace("%a: tensor<8x8xf32>", '%a: tensor<8x8xf32> loc("a")')
    result = run_pipeline(named, ["sp-annotate", CountOps], mesh={"x": 2, "y": 4}, rules=rules)
    assert shardings(result.module) == ['<@mesh, [{}, {"y"}]>']
    own = Annotate(rules=[("a", PartitionSpec("x"))])
    result = run_pipeline(named, [own, Annotate], mesh={"x": 2, "y": 4}, rules=rules)
    assert shardings(result.module) == ['<@mesh, [{"x"}, {}]>']


def test_what_no_pass_takes_or_all_have_is_refused() -> None:
    annotate = Annotate(rules=[("a", PartitionSpec("x"))], mesh=MeshShape.of(x=8))
    found = faults(TEXT, [annotate], rules=[("a", PartitionSpec())], mesh={"x": 2})
    assert said(found) == [
        (
            "error",
            "bad-pipeline",
            "rules= is given twice: sp-annotate has rules of its own in the pipeline",
        ),
        (
            "error",
            "bad-pipeline",
            "mesh= is given twice: sp-annotate has mesh of its own in the pipeline",
        ),
    ]
    found = faults(TEXT, "sp-strip,sdy-close-shardings", mesh={"x": 2})
    assert said(found) == [
        ("error", "bad-pipeline", "mesh= is given, and no pass of the pipeline takes it")
    ]


def test_a_pass_of_ones_own_may_replace_a_built_in_one() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mine(Pass):
        """Note that it ran."""

        name: ClassVar[str] = "sp-strip"

        def run(self, root: ir.Operation, sink: Sink) -> None:
            ran.append("mine")

    assert "sdy" in run_pipeline(TEXT, "sp-strip", passes=[Mine]).module.text()
    assert ran == ["mine"]


def test_the_lowered_step_of_a_jitted_function() -> None:
    lowered = jax.jit(lambda w, x: x @ w).lower(jnp.zeros((8, 4)), jnp.zeros((2, 8)))
    result = run_pipeline(
        lowered,
        "sp-annotate,sp-propagate",
        mesh={"x": 2, "y": 4},
        rules=[("^w$", PartitionSpec(None, "y"))],
    )
    assert shardings(result.module) == ['<@mesh, [{}, {"y"}]>', None]
    assert shardings(result.module, results=True) == ['<@mesh, [{}, {"y"}]>']
    assert "sdy" not in str(lowered.compiler_ir("stablehlo"))


def test_the_built_in_passes() -> None:
    passes = builtin_passes()
    assert list(passes) == sorted(passes)
    assert {"sp-annotate", "sp-export-mhlo", "sp-propagate", "sp-strip", "sp-verify"} <= set(passes)
    for name, cls in passes.items():
        assert cls.name == name
        bare = name.removeprefix("sp-")
        assert cls.__module__ == f"shardpass.passes.{bare.replace('-', '_')}"
        assert cls.__name__ == "".join(word.capitalize() for word in bare.split("-"))
        assert cls.summary().endswith(".")
        for field in cls.options().values():
            assert field.metadata["help"]


def test_summary_and_options_of_a_pass() -> None:
    assert CountOps.summary() == "Count the ops of one kind."
    assert list(CountOps.options()) == ["kind", "most", "scale", "loud"]
    assert "warn-replicated-bytes" in Propagate.options()
    with pytest.raises(NotImplementedError):
        Pass.run(CountOps(), None, Sink())  # pyright: ignore[reportArgumentType]
