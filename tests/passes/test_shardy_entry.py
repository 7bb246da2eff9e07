"""Shardy's passes abort the process on modules that MLIR takes; here they are given what they need.

A fault in this file kills the tests: that is what it was for a library's caller.
"""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from jax.extend.mlir import ir

from shardpass.diagnostics import ShardingError, Sink
from shardpass.mlir import entry_function, load
from shardpass.mlir.native import NATIVE_PASSES, anchor
from shardpass.passes import Pass, run_pipeline
from tests.passes.helpers import MESH, shardings

SHARDED = 'tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
TYPE = "(tensor<8x8xf32>) -> tensor<8x8xf32>"
CUT = '<@mesh, [{"x"}, {}]>'


seen: list[str] = []


@dataclass(frozen=True, kw_only=True)
class Name(Pass):
    """Note the name of the entry function."""

    name: ClassVar[str] = "acme-name"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        seen.append(entry_function(root).name.value)


def function(name: str, body: str, visibility: str = "", argument: str = "tensor<8x8xf32>") -> str:
    return (
        f"func.func {visibility} @{name}(%x: {argument}) -> tensor<8x8xf32> {{\n  {body}\n"
        "  return %0 : tensor<8x8xf32>\n}\n"
    )


ADD = "%0 = stablehlo.add %x, %x : tensor<8x8xf32>"


def call(callee: str) -> str:
    return f"%0 = func.call @{callee}(%x) : {TYPE}"


COMPOSITE = f'%0 = stablehlo.composite "acme.b" %x {{decomposition = @b}} : {TYPE}'

#: Modules on which Shardy's passes abort as they are, by what is odd about them.
ODD = {
    "another name": MESH + function("step", call("b"), "", SHARDED) + function("b", ADD, "private"),
    "private": MESH + function("main", ADD, "private", SHARDED),
    "private and called": MESH
    + function("main", ADD, "private", SHARDED)
    + function("step", call("main"), "private"),
    "nested": MESH + function("main", ADD, "nested", SHARDED),
    "uncalled private": MESH
    + function("step", ADD, "public", SHARDED)
    + function("b", ADD, "private"),
    "composite": MESH + function("step", COMPOSITE, "", SHARDED) + function("b", ADD, "private"),
}
#: All but the one that takes modules whose results are annotated too.
SHARDY = [
    name
    for name in NATIVE_PASSES
    if name.startswith("sdy-") and anchor(name) and name != "sdy-convert-global-to-local"
]


def header(text: str, name: str) -> str:
    """How function ``name`` is declared in ``text``, up to its arguments."""
    line = next(line for line in text.splitlines() if "func.func" in line and f"@{name}(" in line)
    return line.strip().partition("(")[0]


# Propagation does not go through a composite.
@pytest.mark.parametrize("odd", [odd for odd in ODD if odd != "composite"])
def test_propagation_takes_any_entry_function_and_leaves_its_name(odd: str) -> None:
    module = load(ODD[odd])
    name = module.main.name.value
    result = run_pipeline(module, "sp-propagate").module
    assert result.main.name.value == name
    assert header(result.text(), name) == header(module.text(), name)
    assert shardings(result) == [CUT]
    assert shardings(result, results=True) == [CUT]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("shardy_pass", SHARDY)
def test_each_pass_of_shardy_by_itself(shardy_pass: str, odd: str) -> None:
    module = load(ODD[odd])
    result = run_pipeline(module, shardy_pass).module
    name = module.main.name.value
    assert header(result.text(), name) == header(module.text(), name)


def test_callers_follow_the_name_there_and_back() -> None:
    text = MESH + function("step", ADD, "public", SHARDED) + function("b", call("step"), "private")
    result = run_pipeline(load(text), "sdy-close-shardings,cse,sdy-close-shardings").module
    assert f"call @step(%arg0) : {TYPE}" in result.text()
    assert "@main" not in result.text()


def test_a_pass_between_native_ones_sees_the_users_name() -> None:
    seen.clear()
    run_pipeline(
        load(ODD["another name"]),
        ["sdy-close-shardings", Name(), "sdy-close-shardings,cse", Name(), "sp-propagate", Name()],
    )
    assert seen == ["step", "step", "step"]


def test_a_failing_pass_leaves_the_name_too() -> None:
    # Propagation marks the edges into a named computation that its importer would have outlined.
    named = f"""%y = sdy.named_computation<"acme">(%x) (%z: tensor<8x8xf32>) {{
    sdy.return %z : tensor<8x8xf32>
  }} : {TYPE}
  {call("b")}"""
    module = load(MESH + function("step", named) + function("b", ADD, "private"))
    with pytest.raises(ShardingError, match="data_flow_edge"):
        run_pipeline(module, "sp-propagate", in_place=True)
    assert module.main.name.value == "step"
    assert "@main" not in module.text()


@pytest.mark.parametrize(
    ("text", "slug", "told"),
    [
        (
            function("a", call("b")) + function("c", call("b")) + function("b", ADD, "private"),
            "no-entry-function",
            "the module has no function @main and not exactly one other public one "
            "(public: @a, @c)",
        ),
        (
            function("a", ADD, "private"),
            "no-entry-function",
            "the module has no function @main and not exactly one other public one (public: none)",
        ),
        (
            function("main", call("b")) + f"func.func private @b{TYPE}\n",
            "not-supported",
            "@b is declared and has no body, and Shardy's passes follow every function",
        ),
        (
            function("step", call("b"))
            + function("b", ADD, "private")
            + 'sdy.mesh @main = <["a"=2]>',
            "not-supported",
            "Shardy and XLA ask for the entry function, @step, under the name @main, which an "
            "sdy.mesh has",
        ),
        (
            function("main", call("main")),
            "not-supported",
            "@main calls itself: StableHLO has no recursion",
        ),
    ],
)
@pytest.mark.parametrize("pipeline", ["sp-propagate", "sdy-propagation-pipeline"])
def test_what_cannot_be_given_is_refused(text: str, slug: str, told: str, pipeline: str) -> None:
    with pytest.raises(ShardingError) as caught:
        run_pipeline(load(MESH + text), pipeline)
    assert (caught.value.slug, caught.value.diagnostic.message) == (slug, told)


def test_who_asks_for_a_pass_by_name_may_have_it_without_an_entry() -> None:
    text = MESH + function("a", ADD) + function("b", ADD)
    result = run_pipeline(load(text), "sdy-close-shardings", needs_entry=False).module
    assert "@a" in result.text()
    # A pass of ours has its own mind of the module.
    with pytest.raises(ShardingError, match="no function @main"):
        run_pipeline(load(text), "sp-propagate", needs_entry=False)


def test_functions_that_shardy_does_not_look_up_need_no_entry() -> None:
    """Tests of passes give functions names of their own; MLIR's own passes run on them all."""
    text = function("a", ADD) + function("b", ADD)
    assert "@a" in run_pipeline(load(text), "cse,canonicalize").module.text()
    assert "sharding" not in run_pipeline(load(function("a", ADD)), "sp-propagate").module.text()
