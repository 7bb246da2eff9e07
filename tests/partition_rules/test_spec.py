"""Every spelling of a spec reads as the same value, and prints as the TOML that says it."""

import tomllib

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from shardpass.diagnostics import ShardingError
from shardpass.partition_rules import DimensionSpec, Spec
from shardpass.partition_rules.spec import SubAxis

CUT, MAJOR_MINOR, WHOLE, OPEN = (
    DimensionSpec(("data",)),
    DimensionSpec(("data", "model")),
    DimensionSpec(),
    DimensionSpec(open=True),
)


@pytest.mark.parametrize(
    ("written", "dims"),
    [
        (["data"], (CUT,)),
        (("data",), (CUT,)),
        ([["data"]], (CUT,)),
        ([["data", "model"], []], (MAJOR_MINOR, WHOLE)),
        ([("data", "model"), None], (MAJOR_MINOR, WHOLE)),
        (["?", "data"], (OPEN, CUT)),
        ([["data", "?"]], (DimensionSpec(("data",), open=True),)),
        ([["?"]], (OPEN,)),
        ([], ()),
        (PartitionSpec("data"), (CUT,)),
        (PartitionSpec(("data", "model"), None), (MAJOR_MINOR, WHOLE)),
        (PartitionSpec(PartitionSpec.UNCONSTRAINED, "data"), (OPEN, CUT)),
        ((PartitionSpec.UNCONSTRAINED, "data"), (OPEN, CUT)),
        (PartitionSpec(), ()),
    ],
)
def test_spellings(written: object, dims: tuple[DimensionSpec, ...]) -> None:
    assert Spec.of(written) == Spec(dims)


def test_our_partition_spec_reads_like_jax() -> None:
    from shardpass.sharding import PartitionSpec as OurSpec

    ours = OurSpec(("data", "model"), None, OurSpec.UNCONSTRAINED)
    assert Spec.of(ours) == Spec((MAJOR_MINOR, WHOLE, OPEN))


def test_unreduced_axes_are_kept() -> None:
    from shardpass.sharding import PartitionSpec as OurSpec

    for kind in (PartitionSpec, OurSpec):
        assert Spec.of(kind("data", unreduced={"model"})) == Spec((CUT,), ("model",))


def test_a_spec_is_its_own_spelling() -> None:
    spec = Spec((CUT,))
    assert Spec.of(spec) is spec


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("data", 'a spec is a list with one entry per dimension, not the text "data"'),
        (3, "a spec is a list with one entry per dimension, not 3 of type int"),
        ([3], "entry 0 of a spec cannot hold 3 of type int"),
        (["data", [3]], "entry 1 of a spec cannot hold 3 of type int"),
        ([["?", "data"]], 'entry 0 of a spec cannot hold the text "?"'),
        ([""], 'entry 0 of a spec cannot hold the text ""'),
        ([[["data"]]], "entry 0 of a spec cannot hold ['data'] of type list"),
    ],
)
def test_bad_entries(written: object, message: str) -> None:
    with pytest.raises(ShardingError) as caught:
        Spec.of(written)
    assert (caught.value.slug, caught.value.diagnostic.message) == ("bad-spec", message)


def test_a_lone_text_is_answered_with_the_list() -> None:
    with pytest.raises(ShardingError) as caught:
        Spec.of("data")
    assert caught.value.diagnostic.help == 'write ["data"]'


def test_an_axis_twice_points_at_the_second() -> None:
    with pytest.raises(ShardingError) as caught:
        Spec.of(["x", ["y", "x"]]).refuse_repeated()
    assert caught.value.slug == "duplicate-axis"
    excerpt = caught.value.diagnostic.excerpt
    assert excerpt is not None
    assert (excerpt.text, excerpt.column, excerpt.length) == ('["x", ["y", "x"]]', 13, 3)


def test_a_logical_name_twice_is_let_through() -> None:
    spec = Spec.of(["embed", "embed"])
    spec.refuse_repeated({"embed"})
    assert list(spec.names()) == ["embed", "embed"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x", SubAxis("x")),
        ("x:(1)2", SubAxis("x", 1, 2)),
        ("a:b:(2)4", SubAxis("a:b", 2, 4)),
        ("x:2", SubAxis("x:2")),
    ],
)
def test_sub_axes(text: str, part: SubAxis) -> None:
    assert SubAxis.parse(text) == part


names = st.text(st.characters(codec="ascii", exclude_characters="?"), min_size=1, max_size=4)
dims = st.builds(DimensionSpec, st.lists(names, max_size=3).map(tuple), st.booleans())


@given(st.lists(dims, max_size=4))
def test_text_reads_back_through_toml(entries: list[DimensionSpec]) -> None:
    """``str`` is TOML for the same spec; the oracle is Python's TOML reader."""
    spec = Spec(tuple(entries))
    assert Spec.of(tomllib.loads(f"spec = {spec}")["spec"]) == spec


@given(st.lists(st.sampled_from(["x", ("x", "y"), None, PartitionSpec.UNCONSTRAINED]), max_size=4))
def test_jax_spec_and_plain_tuple_agree(entries: list[object]) -> None:
    assert Spec.of(jax.P(*entries)) == Spec.of(tuple(entries))
