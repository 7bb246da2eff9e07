"""What a check establishes about each sharded argument, by faults that it plants itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardpass.canon import HloSharding
from shardpass.diagnostics import Severity
from shardpass.mlir import Module, load
from shardpass.runtime import CheckResult, check, probing
from shardpass.runtime.placement import Layout
from shardpass.runtime.probing import carried_change, most_runs
from shardpass.runtime.rolled import RolledInputs, replaced, rolled
from tests.runtime.test_evidence import program, unproven
from tests.runtime.test_evidence import rolled as planted

#: Gradient descent on the mean of squares of ``x @ w``: the whole effect of ``x`` is its rate.
DESCENT = """
  func.func @main(%w: tensor<32x32xf32> {CUT} loc("w"), %x: tensor<16x32xf32> {CUT} loc("x"))
      -> tensor<32x32xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<16x32xf32>, tensor<32x32xf32>) -> tensor<16x32xf32>
    %1 = stablehlo.dot_general %x, %0, contracting_dims = [0] x [0]
      : (tensor<16x32xf32>, tensor<16x32xf32>) -> tensor<32x32xf32>
    %2 = stablehlo.constant dense<RATE> : tensor<32x32xf32>
    %3 = stablehlo.multiply %1, %2 : tensor<32x32xf32>
    %4 = stablehlo.subtract %w, %3 : tensor<32x32xf32>
    return %4 : tensor<32x32xf32>
  }"""

#: Counts, whatever the argument: 0 * x is 0.
COUNTS = """
  func.func @main(%x: tensor<16x32xf32> {CUT}) -> (RESULTS) {
    %0 = stablehlo.iota dim = 0 : tensor<16x32xf32>
    %1 = stablehlo.constant dense<0.0> : tensor<16x32xf32>
    %2 = stablehlo.multiply %x, %1 : tensor<16x32xf32>
    %3 = stablehlo.add %0, %2 : tensor<16x32xf32>
    %4 = stablehlo.sine %x : tensor<16x32xf32>
    return VALUES
  }"""

#: The sum of all elements, in whatever order they come.
TOTAL = """
  func.func @main(%x: tensor<16x32xf32> {CUT}) -> tensor<f32> {
    %0 = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<16x32xf32>, tensor<f32>) -> tensor<f32>
    return %1 : tensor<f32>
  }"""


def proofs(result: CheckResult) -> dict[str, str]:
    return {row.path: row.proof for row in result.arguments}


class TestWhatCouldNotHaveFailed:
    def test_a_step_too_small_to_be_seen(self):
        """``x`` on the wrong devices changes the result by 1e-9: no comparison can tell."""
        module = program(DESCENT.replace("RATE", "1.0e-9"))
        for place in ({}, {"place": planted(1)}):
            result = check(module, **place)
            assert result.ok
            assert result.rows[0].error < 1e-8
            assert proofs(result) == {"w": "placed", "x": "none"}
            (warning,) = result.warnings
            assert (warning.slug, warning.severity) == ("not-a-proof", Severity.WARNING)
            assert warning.path == "x"
            assert "1 of 2 sharded arguments: unproven" in warning.message
        assert not check(module, place=planted(0)).ok

    def test_a_step_that_is_seen(self):
        module = program(DESCENT.replace("RATE", "1.0e-2"))
        result = check(module)
        assert result.ok
        assert proofs(result) == {"w": "placed", "x": "placed"}
        assert result.warnings == ()
        assert not check(module, place=planted(1)).ok

    @pytest.mark.parametrize("place", [{}, {"place": planted(0)}])
    def test_a_result_that_no_input_changes(self, place: Any):
        text = COUNTS.replace("RESULTS", "tensor<16x32xf32>")
        module = program(text.replace("VALUES", "%3 : tensor<16x32xf32>"))
        result = check(module, **place)
        (message,) = unproven(result)
        assert message == 'result 0 ("result"): it stays as it is, whatever the inputs'
        given = [np.random.default_rng(0).standard_normal((16, 32), np.float32)]
        assert unproven(check(module, inputs=given, **place)) == [message]

    def test_a_result_that_no_input_changes_beside_one_that_they_do(self):
        text = COUNTS.replace("RESULTS", "tensor<16x32xf32>, tensor<16x32xf32>")
        text = text.replace("VALUES", "%3, %4 : tensor<16x32xf32>, tensor<16x32xf32>")
        result = check(program(text))
        assert [row.ok for row in result.rows] == [False, True]
        assert "it stays as it is" in unproven(result)[0]
        assert proofs(result) == {"arg0": "placed"}

    def test_one_sharded_argument_that_is_beneath_the_noise(self):
        """The only sharded argument: nothing at all was proven."""
        replicated = DESCENT.replace('{CUT} loc("w")', '{WHOLE} loc("w")')
        result = check(program(replicated.replace("RATE", "1.0e-9")), place=planted(1))
        (message,) = unproven(result)
        assert "no result leaves its limit when shards change places or are lost" in message
        assert 'argument 1 ("x")' in message

    def test_a_limit_that_hides_the_fault(self):
        """A tolerance wide enough for any error leaves nothing to prove."""
        module = program(DESCENT.replace("RATE", "1.0e-2"))
        assert proofs(check(module, tolerance=0.9)) == {"w": "placed", "x": "none"}

    def test_a_sum_counts_its_shards_and_does_not_mind_their_order(self):
        result = check(program(TOTAL))
        assert result.ok
        assert proofs(result) == {"arg0": "counted"}
        assert result.warnings == ()

    def test_arguments_that_are_all_alike_beside_one_that_is_not(self):
        text = """
  func.func @main(%a: tensor<8x16xf32> {CUT}, %m: tensor<8x16xf32> {CUT}) -> tensor<8x16xf32> {
    %0 = stablehlo.add %a, %m : tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }"""
        varied = np.random.default_rng(0).standard_normal((8, 16), np.float32)
        result = check(program(text), inputs=[varied, np.zeros((8, 16), np.float32)])
        assert result.ok
        assert proofs(result) == {"arg0": "placed", "arg1": "none"}
        assert "the shards of each are all alike: argument 1" in result.warnings[0].message

    def test_json(self):
        record = json.loads(json.dumps(check(program(DESCENT.replace("RATE", "1.0e-9"))).to_json()))
        assert record["arguments"] == [
            {"index": 0, "path": "w", "proof": "placed", "shown_by": "result"},
            {"index": 1, "path": "x", "proof": "none", "shown_by": None},
        ]
        assert [one["slug"] for one in record["warnings"]] == ["not-a-proof"]


class TestTrainingStep:
    @pytest.mark.parametrize("notation", ["sdy", "mhlo"])
    def test_every_argument_shows(self, step: Callable[..., Module], notation: str):
        result = check(step(notation))
        assert len(result.arguments) == 8
        assert {row.proof for row in result.arguments} == {"placed"}
        shown_by = {row.path: row.shown_by for row in result.arguments}
        assert shown_by["state.weights.w1"] == "result.0.weights.w1"
        assert result.warnings == ()

    def test_a_forward_pass_that_does_not_mind_all_weights_rolled_alike(self):
        """Hidden units in another order, in both weights: the same function."""
        text = """
  func.func @main(%x: tensor<8x16xf32> {WHOLE},
      %u: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
      %d: tensor<32x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
      -> tensor<8x16xf32> {
    %0 = stablehlo.dot_general %x, %u, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
    %1 = stablehlo.tanh %0 : tensor<8x32xf32>
    %2 = stablehlo.dot_general %1, %d, contracting_dims = [1] x [0]
      : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
    return %2 : tensor<8x16xf32>
  }"""
        assert proofs(check(program(text))) == {"arg1": "placed", "arg2": "placed"}

    def test_runs_are_bounded_and_the_rest_is_said(self, monkeypatch: pytest.MonkeyPatch):
        """Two layers' kinds have their turn before the second layers do."""
        text = """
  func.func @main(%x: tensor<8x16xf32> {WHOLE},
      %a: tensor<16x16xf32> {CUT} loc("h.0.w"), %b: tensor<16x16xf32> {CUT} loc("h.1.w"),
      %c: tensor<16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}]>} loc("h.0.b"))
      -> tensor<8x16xf32> {
    %0 = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
    %1 = stablehlo.dot_general %0, %b, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
    %2 = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
    %3 = stablehlo.add %1, %2 : tensor<8x16xf32>
    return %3 : tensor<8x16xf32>
  }"""
        monkeypatch.setattr(probing, "most_runs", lambda arguments: 3)
        result = check(program(text))
        assert result.ok
        assert proofs(result) == {"h.0.w": "placed", "h.1.w": "together", "h.0.b": "placed"}
        (remark,) = result.warnings
        assert remark.severity is Severity.REMARK
        assert remark.message == (
            '1 of 3 sharded arguments: tried together with others alone: argument 2 ("h.1.w")'
        )


def test_how_many_runs_are_made():
    def arguments(count: int, size: int) -> Any:
        text = ", ".join(f"%a{i}: tensor<{size}xf32>" for i in range(count))
        return load(f"func.func @main({text}) {{ return }}").arguments

    assert most_runs(arguments(4, 16)) == 128
    assert most_runs(arguments(4, 1 << 23)) == 32
    assert most_runs(arguments(447, 1 << 20)) == 8
    assert most_runs(arguments(1, 0)) == 128


class TestRolling:
    def test_each_distinct_shard_moves_one_place(self):
        layout = Layout(
            HloSharding.parse("{devices=[2,2,2]<=[8] last_tile_dim_replicate}"), (4, 2), 8
        )
        array = np.arange(8).reshape(4, 2)
        np.testing.assert_array_equal(rolled(layout, array), [[1, 4], [3, 6], [5, 0], [7, 2]])
        np.testing.assert_array_equal(rolled(layout, rolled(layout, array, 3)), array)
        np.testing.assert_array_equal(replaced(layout, array), [[0, 0], [2, 2], [0, 0], [2, 2]])

    def test_uneven_shards_move_by_whole_shards(self):
        layout = Layout(HloSharding.parse("{devices=[4,1]<=[4]}"), (7, 2), 4)
        array = np.arange(14).reshape(7, 2)
        np.testing.assert_array_equal(rolled(layout, array), np.roll(array, -2, 0))
        np.testing.assert_array_equal(replaced(layout, array)[:, 0], [0, 2, 0, 2, 0, 2, 0])

    def test_a_fault_is_what_a_wrong_place_makes_of_the_argument(self):
        """The oracle: the arrays that devices give back when every block is one device further."""
        layout = Layout(HloSharding.parse("{devices=[4,2]<=[8]}"), (8, 8), 8)
        array = np.arange(64).reshape(8, 8)
        blocks = layout.cut(array)
        np.testing.assert_array_equal(rolled(layout, array), layout.join(blocks[1:] + blocks[:1]))

    def test_only_the_arguments_asked_for(self):
        class Source:
            def array(self, index: int) -> np.ndarray:
                return np.arange(8) + index

        layouts = [Layout(HloSharding.parse("{devices=[4]<=[4]}"), (8,), 4)] * 2
        inputs = RolledInputs(Source(), layouts, {1: 2})
        np.testing.assert_array_equal(inputs.array(0), np.arange(8))
        np.testing.assert_array_equal(inputs.array(1), [5, 6, 7, 8, 1, 2, 3, 4])


class TestCarried:
    """A result that is an argument and a bit, against one that only moves as much."""

    @pytest.fixture
    def drawn(self) -> np.ndarray:
        return np.random.default_rng(0).standard_normal((4, 400), np.float32)

    def test_along_the_argument(self, drawn: np.ndarray):
        before, after, small, _ = drawn
        change = carried_change(before, after, before, after)
        assert change == pytest.approx(np.linalg.norm(after - before) / np.linalg.norm(before))
        # The rest of the change does not count, and neither does the sign.
        assert carried_change(before, after, before, 2 * before - after) == pytest.approx(change)
        mixed = carried_change(before, after, before, after + small)
        assert mixed == pytest.approx(change, rel=0.1)
        tiny = carried_change(before, after, small, small + 1e-6 * (after - before))
        assert 0 < tiny < 1e-5

    def test_by_chance(self, drawn: np.ndarray):
        before, after, one, other = drawn
        assert carried_change(before, after, one, other) == 0.0
        assert carried_change(before, before, one, other) == 0.0
        assert carried_change(before, after, one, one) == 0.0

    def test_too_few_elements_to_tell(self, drawn: np.ndarray):
        before, after = drawn[0, :30], drawn[1, :30]
        assert carried_change(before, after, before, after) == 0.0

    def test_numbers_beyond_all_bounds(self, drawn: np.ndarray):
        before, after, one, other = drawn
        other[0] = np.inf
        assert carried_change(before, after, one, other) == 0.0


class TestNoise:
    def test_it_is_measured_only_where_it_could_settle_something(self):
        noise = "run unsharded, inputs moved by one unit"
        assert noise not in check(program(DESCENT.replace("RATE", "1.0"))).seconds
        start = time.monotonic()
        seconds = check(program(DESCENT.replace("RATE", "1.0e-4"))).seconds
        spent = time.monotonic() - start
        assert noise in seconds
        # It is taken within another step, and counts once.
        assert 0 < sum(seconds.values()) <= spent
        assert min(seconds.values()) > 0

    def test_a_fault_that_noise_would_excuse_is_not_seen(self):
        """An error beyond the tolerance passes within 8 times the noise, and so would the fault."""
        text = """
  func.func @main(%w: tensor<16x32xf32> {WHOLE} loc("w"), %x: tensor<16x32xf32> {CUT} loc("x"))
      -> tensor<16x32xf32> {
    %0 = stablehlo.constant dense<3.0e4> : tensor<16x32xf32>
    %1 = stablehlo.multiply %w, %0 : tensor<16x32xf32>
    %2 = stablehlo.sine %1 : tensor<16x32xf32>
    %3 = stablehlo.constant dense<10.0> : tensor<16x32xf32>
    %4 = stablehlo.multiply %x, %3 : tensor<16x32xf32>
    %5 = stablehlo.add %2, %4 : tensor<16x32xf32>
    return %5 : tensor<16x32xf32>
  }"""
        result = check(program(text), place=planted(1))
        (row,) = result.rows
        assert row.tolerance < row.error < row.limit
        assert row.decided_by == "noise"
        assert "no result leaves its limit" in unproven(result)[0]


class TestAppliedLayouts:
    def test_a_check_is_no_proof_of_a_layout_that_xla_did_not_apply(self):
        text = """
  func.func @main(%a: tensor<19x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
      -> (tensor<19x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>}) {
    %0 = stablehlo.add %a, %a : tensor<19x6xf32>
    return %0 : tensor<19x6xf32>
  }"""
        result = check(program(text))
        assert [row.ok for row in result.rows] == [True]
        assert not result.ok
        assert [(d.slug, d.severity, d.path) for d in result.diagnostics] == [
            ("layout-not-applied", Severity.ERROR, "arg0"),
            ("layout-not-applied", Severity.ERROR, "result"),
        ]
        assert result.arguments == ()

    def test_a_run_warns(self):
        from shardpass.runtime import run

        text = """
  func.func @main(%a: tensor<19x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
      -> tensor<19x6xf32> {
    %0 = stablehlo.add %a, %a : tensor<19x6xf32>
    return %0 : tensor<19x6xf32>
  }"""
        result = run(program(text))
        (told,) = result.diagnostics
        assert (told.slug, told.severity, told.path) == (
            "layout-not-applied", Severity.WARNING, "arg0"
        )  # fmt: skip
        assert "5x6 (120 B) on each device; XLA makes it {replicated}, 19x6 (456 B)" in told.message
        assert result.to_json()["diagnostics"] == [told.to_json()]
        assert run(program(text.replace("19x6", "20x6"))).diagnostics == ()
