"""What a check may not take for a proof: plans and arguments that hide every wrong layout."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest

from shardpass.canon import HloSharding
from shardpass.mlir import Module, load
from shardpass.runtime import CheckResult, Executable, check
from shardpass.runtime.evidence import shards_differ
from shardpass.runtime.placement import Layout

CUT = 'sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>'
WHOLE = "sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>"
ROWS = "{devices=[8,1]<=[8]}"


def program(text: str) -> Module:
    text = text.replace("CUT", CUT).replace("WHOLE", WHOLE)
    return load('module {\n  sdy.mesh @mesh = <["x"=2, "y"=4]>\n' + text + "\n}\n")


def rolled(argument: int) -> Callable[[Executable, int, np.ndarray], jax.Array]:
    """Places ``argument`` with every block one device further than it belongs."""

    def place(executable: Executable, index: int, array: np.ndarray) -> jax.Array:
        blocks = executable.argument_layouts[index].cut(array)
        if index == argument:
            blocks = blocks[1:] + blocks[:1]
        return executable.place_blocks(index, blocks)

    return place


def unproven(result: CheckResult) -> list[str]:
    """The messages of a check that must have failed for want of proof alone."""
    assert {d.slug for d in result.diagnostics} == {"not-a-proof"}
    assert all(d.help for d in result.diagnostics)
    return [d.message for d in result.diagnostics]


PRODUCT = """
  func.func @main(%a: tensor<8x16xf32> {WHOLE}, %w: tensor<16x8xf32> {CUT}) -> tensor<8x8xf32> {
    %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }"""


class TestArguments:
    @pytest.fixture
    def varied(self) -> np.ndarray:
        return np.random.default_rng(0).standard_normal((8, 16), np.float32)

    def test_shards_that_are_all_alike(self, varied: np.ndarray):
        """A weight of ones looks the same wherever its shards went: the rolled one passed."""
        ones = np.ones((16, 8), np.float32)
        result = check(program(PRODUCT), inputs=[varied, ones], place=rolled(1))
        assert result.rows[0].error < 1e-6
        (message,) = unproven(result)
        assert 'shards that are all alike: argument 1 ("arg1")' in message

    def test_one_shard_repeated(self, varied: np.ndarray):
        repeated = np.tile(varied[:, :2], (2, 4))
        assert repeated.shape == (16, 8)
        result = check(program(PRODUCT), inputs=[varied, repeated], place=rolled(1))
        assert "shards that are all alike" in unproven(result)[0]

    def test_shards_that_differ_are_proof_and_show_the_fault(self, varied: np.ndarray):
        inputs = [varied, varied.T.copy()]
        assert check(program(PRODUCT), inputs=inputs).ok
        assert not check(program(PRODUCT), inputs=inputs, place=rolled(1)).ok

    @pytest.mark.parametrize("fill", [np.zeros, np.ones])
    def test_arguments_that_are_all_one_number(self, fill: Callable[..., np.ndarray]):
        inputs = [fill((8, 16), np.float32), fill((16, 8), np.float32)]
        (message,) = unproven(check(program(PRODUCT), inputs=inputs, place=rolled(1)))
        assert "every element is" in message

    def test_a_result_of_zeros_from_arguments_that_differ(self, varied: np.ndarray):
        inputs = [np.zeros((8, 16), np.float32), varied.T.copy()]
        (message,) = unproven(check(program(PRODUCT), inputs=inputs, place=rolled(1)))
        assert "every element is 0.0 with these inputs" in message

    def test_one_telling_argument_is_enough(self, varied: np.ndarray):
        """An optimizer's moments begin at zero; the gradient that they meet does not."""
        text = """
  func.func @main(%a: tensor<8x16xf32> {CUT}, %m: tensor<8x16xf32> {CUT}) -> tensor<8x16xf32> {
    %0 = stablehlo.add %a, %m : tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }"""
        assert check(program(text), inputs=[varied, np.zeros((8, 16), np.float32)]).ok

    def test_an_argument_that_xla_cuts_itself(self):
        text = """
  func.func @main(%a: tensor<19x6xf32> {CUT}) -> tensor<19x6xf32> {
    %0 = stablehlo.iota dim = 0 : tensor<19x6xf32>
    %1 = stablehlo.add %a, %0 : tensor<19x6xf32>
    return %1 : tensor<19x6xf32>
  }"""
        varied = check(program(text))
        assert [row.ok for row in varied.rows] == [True]
        assert [d.slug for d in varied.diagnostics] == ["layout-not-applied"]
        ones = check(program(text), inputs=[np.ones((19, 6), np.float32)])
        assert [d.slug for d in ones.diagnostics] == ["layout-not-applied", "not-a-proof"]
        assert "shards that are all alike" in ones.diagnostics[1].message

    @pytest.mark.parametrize(
        ("array", "differ"),
        [
            (np.arange(16).reshape(8, 2), True),
            (np.tile([1, 2], (8, 1)), False),
            (np.where(np.arange(16).reshape(8, 2) == 15, 1, 0), True),
            (np.full((8, 2), np.nan), False),
            (np.zeros((8, 0)), False),
            (np.ones((19, 2)), False),
            (np.arange(38).reshape(19, 2), True),
        ],
    )
    def test_whether_shards_differ(self, array: np.ndarray, differ: bool):
        layout = Layout(HloSharding.parse(ROWS), array.shape, 8)
        assert shards_differ(layout, array) is differ


class TestPlans:
    def test_only_an_argument_that_nothing_uses_is_sharded(self):
        text = """
  func.func @main(%a: tensor<8x8xf32> {WHOLE}, %u: tensor<8x8xf32> {CUT}) -> tensor<8x8xf32> {
    %0 = stablehlo.sine %a : tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }"""
        (message,) = unproven(check(program(text), place=rolled(1)))
        assert 'sharded is only argument 1 ("arg1")' in message

    def test_only_an_argument_without_elements_is_sharded(self):
        text = """
  func.func @main(%a: tensor<8x8xf32> {WHOLE}, %u: tensor<8x0xf32> {CUT}) -> tensor<8x8xf32> {
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%u init: %z) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<8x0xf32>, tensor<f32>) -> tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<8x8xf32>
    %2 = stablehlo.add %a, %1 : tensor<8x8xf32>
    return %2 : tensor<8x8xf32>
  }""".replace("{CUT}", '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}')
        (message,) = unproven(check(program(text)))
        assert 'sharded is only argument 1 ("arg1")' in message

    def test_a_program_without_results(self):
        text = "  func.func @main(%a: tensor<8x8xf32> {CUT}) { return }"
        assert unproven(check(program(text))) == [
            "the program has no results: nothing was compared"
        ]

    @pytest.mark.parametrize("order", [slice(None, None, -1), [3, 1, 7, 5, 0, 2, 6, 4]])
    def test_devices_in_an_order_of_ones_own(self, order: slice | list[int]):
        devices = list(np.array(jax.devices(), object)[order])
        assert check(program(PRODUCT), devices=devices).ok
        assert not check(program(PRODUCT), devices=devices, place=rolled(1)).ok

    def test_a_result_that_no_sharded_argument_reaches_beside_one_that_is(self):
        text = """
  func.func @main(%a: tensor<8x8xf32> {CUT},
                  %s: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>})
      -> (tensor<8x8xf32>, tensor<8xf32>) {
    %0 = stablehlo.sine %a : tensor<8x8xf32>
    %1 = stablehlo.sine %s : tensor<8xf32>
    return %0, %1 : tensor<8x8xf32>, tensor<8xf32>
  }"""
        result = check(program(text))
        assert result.ok
        assert [row.decided_by for row in result.rows] == ["tolerance", "tolerance"]


class TestNoise:
    #: A term that is rounding alone, beside one that a wrong layout moves by a tenth.
    NOISY = """
  func.func @main(%a: tensor<8x16xf32> {WHOLE}, %w: tensor<16x16xf32> {CUT}) -> tensor<8x16xf32> {
    %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
    %c = stablehlo.constant dense<0.075> : tensor<8x16xf32>
    %1 = stablehlo.multiply %0, %c : tensor<8x16xf32>
    %d = stablehlo.constant dense<1.0e9> : tensor<8x16xf32>
    %2 = stablehlo.multiply %a, %d : tensor<8x16xf32>
    %3 = stablehlo.sine %2 : tensor<8x16xf32>
    %e = stablehlo.constant dense<0.012> : tensor<8x16xf32>
    %4 = stablehlo.multiply %3, %e : tensor<8x16xf32>
    %5 = stablehlo.add %a, %1 : tensor<8x16xf32>
    %6 = stablehlo.add %5, %4 : tensor<8x16xf32>
    return %6 : tensor<8x16xf32>
  }"""

    def test_a_limit_that_a_wrong_layout_fits_into(self):
        result = check(program(self.NOISY), place=rolled(1))
        (row,) = result.rows
        assert row.error < row.limit < 1.0
        (message,) = unproven(result)
        assert "is beyond 0.1: a wrong layout could hide in it" in message
        record = row.to_json()
        assert record["help"] == row.help
