"""PartitionSpec: a tuple that JAX takes for its own."""

import copy
import pickle

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as JaxSpec

from shardpass.diagnostics import ShardingError
from shardpass.sharding import UNCONSTRAINED, P, PartitionSpec

PAIRS = [
    (P(), JaxSpec()),
    (P(None), JaxSpec(None)),
    (P("x"), JaxSpec("x")),
    (P("x", None), JaxSpec("x", None)),
    (P(("x", "y"), "z"), JaxSpec(("x", "y"), "z")),
    (P(["x", "y"]), JaxSpec(("x", "y"))),
    (P(("x",)), JaxSpec("x")),
    (P(()), JaxSpec(None)),
    (P(P.UNCONSTRAINED, "x"), JaxSpec(JaxSpec.UNCONSTRAINED, "x")),
    (P("x", unreduced={"y"}), JaxSpec("x", unreduced={"y"})),
    (P("x", reduced={"y"}), JaxSpec("x", reduced={"y"})),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda spec: repr(spec))
def test_equals_jax_both_ways_with_one_hash(ours, theirs):
    assert ours == theirs
    assert theirs == ours
    assert (ours != theirs) is False
    assert hash(ours) == hash(theirs)
    assert {ours: 1}[theirs] == 1
    assert ours.to_jax() is theirs
    assert PartitionSpec.from_jax(theirs) == ours


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (P("x"), P("x", None)),
        (P("x"), JaxSpec("x", None)),
        (P("x"), JaxSpec("y")),
        (P("x"), P("x", unreduced={"y"})),
        (P("x", "y"), ("x", "y")),
        (P(), ()),
    ],
)
def test_unequal_as_in_jax(one, other):
    assert one != other
    assert other != one


def test_is_a_tuple_and_one_of_jax():
    spec = P("x", None, ("y", "z"))
    assert isinstance(spec, tuple)
    assert isinstance(spec, JaxSpec)
    assert tuple(spec) == ("x", None, ("y", "z"))
    assert len(spec) == 3
    assert spec[2] == ("y", "z")
    assert spec[-3:] == ("x", None, ("y", "z"))
    assert "x" in spec
    first, *rest = spec
    assert (first, rest) == ("x", [None, ("y", "z")])
    assert spec.index(("x",)) == 0
    assert spec.count(None) == 1


def test_joins_with_specs_and_tuples():
    assert P("x") + P("y") == P("x", "y")
    assert P("x") + JaxSpec("y") == P("x", "y")
    assert JaxSpec("y") + P("x") == P("y", "x")
    entries = ("y",)
    assert P("x") + entries == P("x", "y")
    assert entries + P("x") == P("y", "x")
    assert P("x", unreduced={"z"}) + P("y") == P("x", "y", unreduced={"z"})
    with pytest.raises(TypeError):
        P("x") + 3


def test_update_keeps_the_rest():
    spec = P("x", unreduced={"y"}, reduced={"z"})
    assert spec.update(partitions=("w",)) == P("w", unreduced={"y"}, reduced={"z"})
    assert spec.update(unreduced=frozenset()) == P("x", reduced={"z"})
    assert type(spec.update(partitions=())) is PartitionSpec


def test_unreduced_axes_are_not_dropped_in_silence():
    spec = P("x", unreduced={"y"})
    for use in (lambda: tuple(spec), lambda: spec[0], lambda: P(*spec)):
        with pytest.raises(ShardingError, match="would be lost") as caught:
            use()
        assert caught.value.slug == "bad-spec"
    assert spec.partitions == ("x",)


def test_is_a_leaf():
    tree = {"a": P("x"), "b": [P("y", None), P()]}
    assert jax.tree.leaves(tree) == [P("x"), P("y", None), P()]
    assert jax.tree.map(len, tree) == {"a": 1, "b": [2, 0]}


@pytest.mark.parametrize("spec", [ours for ours, _ in PAIRS], ids=repr)
def test_survives_pickle_copy_and_repr(spec):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(spec, protocol))
        assert again == spec
        assert type(again) is PartitionSpec
    assert copy.copy(spec) is spec
    assert copy.deepcopy({"spec": spec})["spec"] is spec
    assert eval(repr(spec), {"PartitionSpec": PartitionSpec}) == spec


def test_repr_is_stable():
    spec = P("x", UNCONSTRAINED, None, ("y", "z"), unreduced={"b", "a"}, reduced={"c"})
    assert repr(spec) == (
        "PartitionSpec('x', PartitionSpec.UNCONSTRAINED, None, ('y', 'z'), "
        "unreduced={'a', 'b'}, reduced={'c'})"
    )


def test_cannot_be_changed():
    spec = P("x")
    with pytest.raises(AttributeError):
        spec.unreduced = frozenset({"y"})
    with pytest.raises(AttributeError):
        spec.colour = "red"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: P(3), "entry 0 is 3, of type int"),
        (lambda: P("x", 1.5), "entry 1 is 1.5, of type float"),
        (lambda: P(("x", None)), "entry 0 is ('x', None), and None within it"),
        (lambda: P(("x", ("y",))), "entry 0 is ('x', ('y',)), and ('y',) within it"),
        (lambda: P("x", ("y", P.UNCONSTRAINED)), "entry 1 is ('y', UNCONSTRAINED)"),
        (lambda: P({"x"}), "entry 0 is {'x'}, of type set"),
        (lambda: P(""), "entry 0 is an empty axis name"),
        (lambda: P("x", unreduced="yz"), "unreduced='yz' is text"),
        (lambda: P("x", unreduced={3}), "unreduced holds 3"),
        (lambda: P("x", unreduced={"x"}), 'axis "x" cannot be both a cut and unreduced'),
        (lambda: P("x", reduced={"x"}), 'axis "x" cannot be both a cut and reduced'),
        (lambda: P(unreduced={"x"}, reduced={"x"}), 'axis "x" cannot be both unreduced and'),
        (lambda: P("x", unreduced_kind="max"), "unreduced_kind 'max'"),
    ],
)
def test_bad_entries_are_refused(make, message):
    with pytest.raises(ShardingError) as caught:
        make()
    assert caught.value.slug == "bad-spec"
    assert message in str(caught.value)


def test_what_is_no_spec_is_refused():
    with pytest.raises(ShardingError, match=r"write PartitionSpec\('x', 'y'\)") as caught:
        PartitionSpec.from_jax(("x", "y"))
    assert caught.value.slug == "abstract-type"
    with pytest.raises(ShardingError) as caught:
        PartitionSpec.from_jax(JaxSpec(7))
    assert caught.value.slug == "bad-spec"


def test_unreduced_kind_goes_along():
    kinds = getattr(jax.sharding, "UnreducedKind", None)
    if kinds is None:
        with pytest.raises(ShardingError, match="knows sums alone"):
            P("x", unreduced={"y"}, unreduced_kind="max")
        return
    kind = kinds.max
    spec = P("x", unreduced={"y"}, unreduced_kind=kind)
    assert spec == JaxSpec("x", unreduced={"y"}, unreduced_kind=kind)
    assert spec != P("x", unreduced={"y"})
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert repr(spec) == "PartitionSpec('x', unreduced={'y'}, unreduced_kind=UnreducedKind.max)"
    assert spec.update(unreduced=frozenset()) == P("x")
    with pytest.raises(ShardingError, match="without unreduced axes"):
        P("x", unreduced_kind=kind)


def test_every_api_that_takes_a_spec_takes_it(mesh):
    x = np.arange(64.0).reshape(8, 8)
    named = jax.sharding.NamedSharding(mesh.to_jax(), P("x", "y"))
    assert named == jax.sharding.NamedSharding(mesh.to_jax(), JaxSpec("x", "y"))
    with jax.set_mesh(mesh.to_jax()):
        put = jax.device_put(x, P("x"))
        assert put.sharding.shard_shape(x.shape) == (4, 8)
        out = jax.jit(lambda a: a + 1, in_shardings=P("x"), out_shardings=P(None, "y"))(x)
        assert out.sharding.spec == JaxSpec(None, "y")
        held = jax.jit(lambda a: jax.lax.with_sharding_constraint(a, P("y")))(x)
        assert held.sharding.shard_shape(x.shape) == (2, 8)
    summed = jax.shard_map(
        lambda a: jax.lax.psum(a, "x"), mesh=mesh.to_jax(), in_specs=P("x"), out_specs=P()
    )(x)
    np.testing.assert_array_equal(summed, x[:4] + x[4:])
