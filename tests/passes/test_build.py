"""From the names and options of passes to the steps of a pipeline."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from jax.extend.mlir import ir

from shardpass.diagnostics import ShardingError, Sink
from shardpass.passes import Pass, build, builtin_passes, run_pipeline
from shardpass.passes.propagate import Propagate
from shardpass.passes.strip import Strip
from tests.passes.own_passes import TEXT, CountOps, ran


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


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


@pytest.mark.parametrize("pipeline", [3, [3], [None], int, [int]])
def test_what_is_not_a_pass(pipeline: Any) -> None:
    with pytest.raises(ShardingError) as caught:
        run_pipeline(TEXT, pipeline)
    assert caught.value.slug == "abstract-type"


def test_a_pass_of_ones_own_may_replace_a_built_in_one() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mine(Pass):
        """Note that it ran."""

        name: ClassVar[str] = "sp-strip"

        def run(self, root: ir.Operation, sink: Sink) -> None:
            ran.append("mine")

    assert "sdy" in run_pipeline(TEXT, "sp-strip", passes=[Mine]).module.text()
    assert ran == ["mine"]


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
