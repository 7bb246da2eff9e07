"""Logical names mean what they mean in Flax."""

import pytest
from flax.linen.spmd import logical_to_mesh_axes
from hypothesis import given
from hypothesis import strategies as st

from shardpass.diagnostics import ShardingError
from shardpass.partition_rules import LogicalAxes, Spec

T5X = [
    ("batch", "data"),
    ("vocab", "model"),
    ("mlp", "model"),
    ("heads", "model"),
    ("kv", None),
    ("embed", "model"),
    ("embed", "data"),
]


@pytest.mark.parametrize(
    ("names", "axes"),
    [
        (["embed", "mlp"], (("data",), ("model",))),
        (["vocab", "embed"], (("model",), ("data",))),
        (["embed"], (("model",),)),
        (["batch", "embed"], (("data",), ("model",))),
        (["heads", "kv"], (("model",), ())),
        (["mlp", "heads"], (("model",), ())),
        (["batch", "mlp", "embed"], (("data",), ("model",), ())),
    ],
)
def test_t5x_rules(names: list[str], axes: tuple[tuple[str, ...], ...]) -> None:
    assert LogicalAxes.of(T5X).assign(Spec.of(names)) == axes


def test_a_logical_name_twice_keeps_the_first() -> None:
    logical = LogicalAxes.of({"embed": "model"})
    assert logical.assign(Spec.of(["embed", "embed"])) == (("model",), ())


def test_a_mesh_axis_written_out_is_taken_first() -> None:
    logical = LogicalAxes.of({"embed": "model", "batch": "data"})
    spec = Spec.of(["embed", "model", "batch"])
    assert logical.assign(spec) == ((), ("model",), ("data",))


def test_names_of_one_dimension_are_joined_major_to_minor() -> None:
    logical = LogicalAxes.of({"batch": ["pod", "data"], "seq": "model"})
    assert logical.assign(Spec.of([["batch", "seq"], []])) == (("pod", "data", "model"), ())


@pytest.mark.parametrize("value", ["", [], None, ()])
def test_no_axes_means_replicated(value: object) -> None:
    assert LogicalAxes.of({"embed": value}).assign(Spec.of(["embed"])) == ((),)


def test_a_mapping_and_pairs_agree() -> None:
    assert LogicalAxes.of({"a": "x", "b": ["y", "z"]}) == LogicalAxes.of(
        [("a", "x"), ("b", ("y", "z"))]
    )


@pytest.mark.parametrize(
    "value", [3, "text", [("a",)], [(1, "x")], {"a": 3}, {"a": [3]}, {"a": [""]}]
)
def test_what_is_no_mapping(value: object) -> None:
    with pytest.raises(ShardingError) as caught:
        LogicalAxes.of(value)
    assert caught.value.slug == "bad-rules"


def test_an_axis_twice_behind_one_name() -> None:
    with pytest.raises(ShardingError) as caught:
        LogicalAxes.of({"a": ["x", "x"]})
    assert caught.value.slug == "duplicate-axis"


LOGICAL = ["a", "b", "c", "d"]
mesh_axes = st.sampled_from([None, "x", "y", "z", ("x", "y"), ("y", "z")])
rules = st.lists(st.tuples(st.sampled_from(LOGICAL), mesh_axes), max_size=8)
dimensions = st.lists(st.sampled_from(LOGICAL), unique=True, max_size=4)


@given(rules, dimensions)
def test_agrees_with_flax(pairs: list[tuple[str, object]], names: list[str]) -> None:
    """Same mesh axes per dimension as ``flax.linen.logical_to_mesh_axes``, names once each."""
    known = [*pairs, *((name, None) for name in LOGICAL)]
    expected = tuple(
        () if e is None else (e,) if isinstance(e, str) else tuple(e)
        for e in tuple(logical_to_mesh_axes(names, known) or ())
    )
    ours = LogicalAxes.of(known).assign(Spec.of(names))
    assert ours == expected + ((),) * (len(names) - len(expected))


@given(rules, st.lists(st.sampled_from([*LOGICAL, "x", "y"]), max_size=5))
def test_no_axis_cuts_twice(pairs: list[tuple[str, object]], names: list[str]) -> None:
    names = [n for i, n in enumerate(names) if n in LOGICAL or n not in names[:i]]
    logical = LogicalAxes.of([*pairs, *((name, None) for name in LOGICAL)])
    used = [axis for axes in logical.assign(Spec.of(names)) for axis in axes]
    assert len(used) == len(set(used))
