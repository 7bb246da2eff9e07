"""The entries of a pmap spec, and the blocks that they cut."""

import math

import numpy as np
import pytest
from hypothesis import given

from shardpass.sharding import (
    Chunked,
    NoSharding,
    Replicated,
    ShardedAxis,
    ShardingSpec,
    Unstacked,
)
from tests.sharding.dropped import refused, shape_for, specs

ROWS = ShardingSpec([Chunked([8]), NoSharding()], [ShardedAxis(0)])

# The spec -----------------------------------------------------------------------------------------


def test_entries_are_values():
    assert Chunked([8]) == Chunked((8,)) != Chunked([4])
    assert Chunked([2, 4]) != Chunked([8])
    assert Chunked([2, 4]).chunks == [2, 4]
    assert Chunked([2, 4]).pieces == 8
    assert Unstacked(4) == Unstacked(np.int64(4)) != Unstacked(8)
    assert Unstacked(4).size == 4
    assert NoSharding() == NoSharding() != Unstacked(1)
    assert ShardedAxis(1).axis == 1
    assert Replicated(2).replicas == 2
    assert len({Chunked([8]), Chunked([8]), Unstacked(8), NoSharding(), NoSharding()}) == 3


def test_entries_are_written_as_jax_wrote_them():
    assert repr(ROWS) == "ShardingSpec((Chunked(8), NoSharding()), (ShardedAxis(axis=0),))"
    spec = ShardingSpec([Chunked([2, 2]), Unstacked(2)], map(ShardedAxis, (2, 0, 1)))
    assert repr(spec) == (
        "ShardingSpec((Chunked(2,2), Unstacked(2)), "
        "(ShardedAxis(axis=2), ShardedAxis(axis=0), ShardedAxis(axis=1)))"
    )
    assert repr(ShardingSpec([], [Replicated(8)])) == "ShardingSpec((), (Replicated(replicas=8),))"


def test_specs_are_values():
    again = ShardingSpec((Chunked([8]), NoSharding()), (ShardedAxis(0),))
    assert again == ROWS
    assert hash(again) == hash(ROWS)
    assert ShardingSpec([Chunked([8])], [ShardedAxis(0)]) != ROWS
    assert ShardingSpec([Chunked([8]), NoSharding()], [ShardedAxis(0), Replicated(1)]) != ROWS


def test_indices():
    spec = ShardingSpec(
        [Chunked([2]), NoSharding(), Unstacked(2)], [ShardedAxis(1), ShardedAxis(0)]
    )
    found = spec.indices((6, 5, 2))
    assert found.shape == spec.mesh_shape == (2, 2)
    assert found[0, 1] == (slice(3, 6), slice(None), 0)
    assert found[1, 0] == (slice(0, 3), slice(None), 1)
    copied = ShardingSpec([Chunked([2])], [Replicated(3), ShardedAxis(0)]).indices((4,))
    assert copied.shape == (3, 2)
    assert copied[2, 1] == (slice(2, 4),)


@given(specs(unstacked=True))
def test_indices_cut_the_whole_and_copy_it(spec):
    """Every element is on just as many devices as there are copies, and blocks are alike."""
    shape = shape_for(spec)
    counts = np.zeros(shape, int)
    for index in spec.indices(shape).flat:
        counts[index] += 1
    copies = math.prod(e.replicas for e in spec.mesh_mapping if isinstance(e, Replicated))
    assert (counts == copies).all()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Chunked([]), "Chunked([]) says no number of pieces"),
        (lambda: Chunked([0]), "Chunked(0) has no piece; the least is 1"),
        (lambda: Chunked(8), "write Chunked([8])"),
        (lambda: Chunked("8"), "not str '8'"),
        (lambda: Chunked([2.0]), "whole numbers, not float 2.0"),
        (lambda: Unstacked(0), "Unstacked(0) has no piece"),
        (lambda: Unstacked(True), "whole numbers, not bool True"),
        (lambda: Replicated(-1), "Replicated(-1) has no piece"),
        (lambda: ShardingSpec([8], []), "entry 0 of sharding is int 8, not one of NoSharding"),
        (lambda: ShardingSpec([], [8]), "entry 0 of mesh_mapping is int 8, not one of ShardedAxis"),
        (
            lambda: ShardingSpec([Chunked([8])], []),
            "has 1 sharded axes, and the mesh mapping names",
        ),
        (lambda: ShardingSpec([Chunked([8])], [ShardedAxis(1)]), "names [1] (name each of 0 once)"),
        (lambda: ShardingSpec([NoSharding()], [ShardedAxis(0)]), "name none, or cut a dimension"),
        (lambda: ShardingSpec([Chunked([2, 2])], [ShardedAxis(0)] * 2), "names [0, 0]"),
    ],
)
def test_specs_that_say_nothing(make, text):
    slug, message = refused(make)
    assert slug == "bad-spec"
    assert text in message
