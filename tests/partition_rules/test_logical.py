"""Logical names mean what they mean in Flax."""

import pytest
from flax.linen.spmd import logical_to_mesh_axes
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

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


@pytest.mark.parametrize(
    ("spec", "axes", "losses"),
    [
        (["a", "data"], (("data",), ()), [(1, "data", ("data",))]),
        (["data", "a"], (("data",), ()), [(1, "a", ("data",))]),
        ([["a", "data"], "b"], (("data",), ("model",)), [(0, "data", ("data",))]),
        (["a", ["model", "data"]], (("data",), ("model",)), [(1, "data", ("data",))]),
        (["a", "a"], (("data",), ()), [(1, "a", ("data",))]),
        (["a", "data", "a"], (("data",), (), ()), [(1, "data", ("data",)), (2, "a", ("data",))]),
        (["both", "model"], (("data", "model"), ()), [(1, "model", ("model",))]),
        (["model", "both"], (("model",), ()), [(1, "both", ("data", "model"))]),
        (["a", "data:(1)2"], (("data",), ()), [(1, "data:(1)2", ("data:(1)2",))]),
        (["half", "data:(2)2"], (("data:(1)2",), ("data:(2)2",)), []),
        (["a", "none"], (("data",), ()), []),
    ],
)
def test_between_a_logical_name_and_a_mesh_axis_the_first_keeps_it(
    spec: list[object], axes: object, losses: list[object]
) -> None:
    logical = LogicalAxes.of(
        {"a": "data", "b": "model", "both": ["data", "model"], "half": "data:(1)2", "none": []}
    )
    assert logical.assign(Spec.of(spec)) == axes
    lost = logical.losses(Spec.of(spec))
    assert [(loss.dimension, loss.name, loss.axes) for loss in lost] == losses


def test_an_unreduced_axis_is_never_given_away() -> None:
    spec = Spec.of(PartitionSpec("a", unreduced=frozenset({"data"})))
    logical = LogicalAxes.of({"a": "data"})
    assert logical.assign(spec) == ((),)
    assert [loss.name for loss in logical.losses(spec)] == ["a"]


def test_a_name_that_takes_its_second_line_loses_nothing() -> None:
    logical = LogicalAxes.of(T5X)
    assert logical.losses(Spec.of(["embed", "mlp"])) == ()
    assert [loss.name for loss in logical.losses(Spec.of(["batch", "mlp", "embed"]))] == ["embed"]


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
