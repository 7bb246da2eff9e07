"""Rules on a mesh: what a matched value gets, and what is refused."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardpass.canon import MeshShape, TensorSharding
from shardpass.diagnostics import Severity, ShardingError
from shardpass.partition_rules import Match, PartitionRules, Resolution, Rule, Spec, resolve_spec

MESH = MeshShape.of(data=2, model=4)


def resolve(
    rules: PartitionRules, shape: tuple[int, ...], path: str = "params.wq", **more: object
) -> Resolution:
    found = rules.for_value(path, path, shape)
    assert found is not None
    subject = f'argument 0 ("{path}")'
    return rules.resolve(found, shape, subject=subject, path=path, **more)  # pyright: ignore[reportArgumentType]


def refused(
    rules: PartitionRules, shape: tuple[int, ...], path: str = "params.wq"
) -> ShardingError:
    with pytest.raises(ShardingError) as caught:
        resolve(rules, shape, path)
    return caught.value


@pytest.mark.parametrize(
    ("spec", "shape", "dims"),
    [
        (["data", "model"], (8, 8), [["data"], ["model"]]),
        ([["model", "data"]], (8, 8), [["model", "data"], []]),
        ([[], "model"], (8, 8, 3), [[], ["model"], []]),
        (["?", ["data", "?"]], (3, 8), ["?", ["data", "?"]]),
        ([], (3, 5), [[], []]),
        (PartitionSpec(None, ("data", "model")), (3, 16), [[], ["data", "model"]]),
        ([], (), []),
    ],
)
def test_specs_on_a_mesh(spec: object, shape: tuple[int, ...], dims: list[list[str]]) -> None:
    found = resolve(PartitionRules([("wq", spec)], MESH), shape)
    assert found == Resolution(TensorSharding.build(MESH, dims))


def test_sub_axes_on_a_mesh() -> None:
    found = resolve(PartitionRules([("wq", ["model:(1)2", "model:(2)2"])], MESH), (8, 8))
    assert found.sharding.dims_text() == '[{"model":(1)2}, {"model":(2)2}]'


def test_logical_names_on_a_mesh() -> None:
    rules = PartitionRules(
        [("wq", ["embed", "heads"])], MESH, [("heads", "model"), ("embed", ["data"])]
    )
    assert resolve(rules, (8, 8)).sharding.dims_text() == '[{"data"}, {"model"}]'


@pytest.mark.parametrize(
    "mesh",
    [
        {"data": 2, "model": 4},
        MESH,
        Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model")),
        jax.sharding.AbstractMesh((2, 4), ("data", "model")),
    ],
)
def test_every_kind_of_mesh(mesh: object) -> None:
    rules = PartitionRules([("wq", ["data"])])
    assert rules.mesh is None
    assert rules.with_mesh(mesh).mesh == MESH
    assert PartitionRules([("wq", ["data"])], mesh).mesh == MESH


def test_a_dimension_that_does_not_divide() -> None:
    error = refused(PartitionRules([("wq", [[], "model"])], MESH), (8, 19))
    shown = error.diagnostic
    assert shown.slug == "indivisible"
    assert shown.message == 'argument 0 ("params.wq"), dimension 1: 19 elements into 4 pieces'
    assert shown.path == "params.wq"
    assert shown.notes == (
        'sharding is [{}, {"model"}] on mesh data=2, model=4',
        'rule 1: match = "wq", spec = [[], "model"]',
    )
    assert shown.help == (
        "pad to 20 (nearest sizes that work: 16 and 20), drop an axis, "
        'or set indivisible = "replicate"'
    )


def test_all_dimensions_that_do_not_divide_are_listed() -> None:
    error = refused(PartitionRules([("wq", ["data", "model"])], MESH), (3, 2))
    assert [d.message for d in error.diagnostics] == [
        'argument 0 ("params.wq"), dimension 0: 3 elements into 2 pieces',
        'argument 0 ("params.wq"), dimension 1: 2 elements into 4 pieces',
    ]
    assert (error.diagnostics[1].help or "").startswith("pad to 4 (nearest sizes that work: 4),")


def test_indivisible_replicate_leaves_that_dimension_whole_and_says_so() -> None:
    rules = PartitionRules([("wq", ["data", ["model", "?"]])], MESH, indivisible="replicate")
    found = resolve(rules, (8, 19))
    assert found.sharding == TensorSharding.build(MESH, [["data"], "?"])
    (warning,) = found.diagnostics
    assert (warning.severity, warning.slug, warning.message) == (
        Severity.WARNING,
        "replicated",
        'argument 0 ("params.wq"), dimension 1: 19 elements into 4 pieces; left whole',
    )
    assert resolve(rules, (8, 19)).diagnostics == (warning,)
    assert resolve(rules, (8, 20)) == Resolution(
        TensorSharding.build(MESH, [["data"], ["model", "?"]])
    )


def test_a_size_that_is_not_static() -> None:
    error = refused(PartitionRules([("wq", ["data"])], MESH), (-1, 8))
    assert error.slug == "dynamic-shape"
    assert resolve(PartitionRules([("wq", [[], "data"])], MESH), (-1, 8)).sharding.dims_text() == (
        '[{}, {"data"}]'
    )


def test_a_spec_longer_than_the_rank() -> None:
    error = refused(PartitionRules([("w", ["data", "model"])], MESH), (8,))
    shown = error.diagnostic
    assert (shown.slug, shown.message, shown.help) == (
        "rank-mismatch",
        'argument 0 ("params.wq"): a spec of 2 entries for 1 dimension',
        "drop 1, or narrow the rule with rank = 2",
    )
    assert shown.notes[0] == "shape is 8"


def test_a_regex_that_sweeps_over_a_scalar_leaves_it_replicated() -> None:
    for pattern in (
        "count",
        "",
        r"opt\..*",
        "opt.count",
        "^opt.count$",
        r"^opt\.count",
        r"opt\.count$",
    ):
        rules = PartitionRules([(pattern, ["data", "model"])], MESH)
        found = resolve(rules, (), "opt.count")
        assert found == Resolution(TensorSharding.replicated_on(MESH, 0))


def test_an_explicit_spec_on_a_scalar_is_refused() -> None:
    error = refused(PartitionRules([(r"^opt\.count$", ["data"])], MESH), (), "opt.count")
    assert (error.slug, error.diagnostic.message) == (
        "scalar-spec",
        'argument 0 ("opt.count"): a spec of 1 entry for a scalar',
    )
    assert resolve(PartitionRules([("opt.count", [])], MESH), (), "opt.count").sharding.rank == 0


def test_the_faults_of_all_rules_come_at_once() -> None:
    with pytest.raises(ShardingError) as caught:
        PartitionRules([("a(", []), ("b", ["x"]), 3, ("c", "x")], MESH)
    assert [d.slug for d in caught.value.diagnostics] == ["bad-regex", "bad-rules", "bad-spec"]
    with pytest.raises(ShardingError) as caught:
        PartitionRules([("a", ["x", "y"]), ("b", ["data", "data"]), ("c", ["z"])], MESH)
    assert [d.slug for d in caught.value.diagnostics] == [
        "unknown-axis",
        "unknown-axis",
        "duplicate-axis",
        "unknown-axis",
    ]


def test_without_a_mesh() -> None:
    rules = PartitionRules([("wq", ["data"])])
    error = refused(rules, (8,))
    assert (error.slug, error.diagnostic.message) == (
        "bad-rules",
        "the rules name mesh axes, but no mesh is given",
    )
    assert resolve(rules, (8,), mesh=MESH).sharding.dims_text() == '[{"data"}]'


@pytest.mark.parametrize(
    ("spec", "slug", "message", "help"),
    [
        (
            ["modle"],
            "unknown-axis",
            '"modle" is not an axis of the mesh data=2, model=4',
            'did you mean "model"?',
        ),
        (
            ["zzz"],
            "unknown-axis",
            '"zzz" is not an axis of the mesh data=2, model=4',
            "the axes are data, model",
        ),
        (
            ["data", "data"],
            "duplicate-axis",
            '"data" stands twice in ["data", "data"]',
            "one axis can cut one dimension only; drop one of the two",
        ),
    ],
)
def test_axes_are_checked_with_the_mesh(
    spec: list[str], slug: str, message: str, help: str
) -> None:
    with pytest.raises(ShardingError) as caught:
        PartitionRules([("wq", spec)]).with_mesh(MESH)
    shown = caught.value.diagnostic
    assert (shown.slug, shown.message, shown.help) == (slug, message, help)


def test_an_axis_and_a_part_of_it() -> None:
    with pytest.raises(ShardingError) as caught:
        PartitionRules([("wq", ["model", "model:(1)2"])], MESH)
    assert caught.value.slug == "duplicate-axis"


def test_a_sub_axis_that_is_none() -> None:
    with pytest.raises(ShardingError) as caught:
        PartitionRules([("wq", ["model:(1)3"])], MESH)
    assert caught.value.slug == "bad-sub-axis"


def test_logical_names_are_checked_with_the_mesh() -> None:
    with pytest.raises(ShardingError) as caught:
        PartitionRules([("wq", ["embed"])], MESH, {"embed": "modle"})
    shown = caught.value.diagnostic
    assert (shown.slug, shown.message, shown.help) == (
        "unknown-axis",
        'logical name "embed" maps to "modle", which is not an axis of the mesh data=2, model=4',
        'did you mean "model"?',
    )


def test_the_first_of_conflicting_rules_wins() -> None:
    rules = PartitionRules([("wq", ["data"]), ("w", ["model"])], MESH)
    assert resolve(rules, (8,)).sharding.dims_text() == '[{"data"}]'


def test_conflicts_can_be_refused() -> None:
    rules = PartitionRules([("wq", ["data"]), ("w", ["model"])], MESH, conflicts="error")
    shown = refused(rules, (8,)).diagnostic
    assert (shown.slug, shown.message) == (
        "rule-conflict",
        'argument 0 ("params.wq"): rules 1 and 2 both hold and give [{"data"}] and [{"model"}]',
    )
    assert shown.notes == (
        'rule 1: match = "wq", spec = ["data"]',
        'rule 2: match = "w", spec = ["model"]',
    )


def test_rules_that_agree_are_no_conflict() -> None:
    rules = PartitionRules([("wq", ["data"]), ("w", ["data", []])], MESH, conflicts="error")
    assert resolve(rules, (8, 8)).sharding.dims_text() == '[{"data"}, {}]'


def test_a_later_rule_that_cannot_be_is_a_conflict() -> None:
    rules = PartitionRules([("wq", ["data"]), ("w", ["data", []])], MESH, conflicts="error")
    assert refused(rules, (8,)).diagnostic.message.endswith(
        'give [{"data"}] and none (a spec of 2 entries for 1 dimension)'
    )


def test_rules_that_matched_nothing() -> None:
    rules = PartitionRules([("wq", ["data"]), ("wx", ["model"]), Rule(op="chlo.erf", spec=[])])
    assert [(d.slug, d.message) for d in rules.unused({0})] == [
        ("unused-rule", 'rule 2: match = "wx", spec = ["model"] matched nothing'),
        ("unused-rule", 'rule 3: op = "chlo.erf", spec = [] matched nothing'),
    ]
    assert rules.unused({0, 1, 2}) == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rules": ["kernel"]}, "rule 1 is 'kernel' of type str"),
        ({"rules": [("a", []), ("a", [], [])]}, "rule 2 is ('a', [], []) of type tuple"),
        ({"rules": [], "conflicts": "last"}, "conflicts is 'first' or 'error', not 'last'"),
        ({"rules": [], "indivisible": "pad"}, "indivisible is 'error' or 'replicate', not 'pad'"),
    ],
)
def test_what_is_no_rule(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ShardingError) as caught:
        PartitionRules(**arguments)  # pyright: ignore[reportArgumentType]
    assert (caught.value.slug, caught.value.diagnostic.message) == ("bad-rules", message)


def test_rules_from_whatever_there_is(tmp_path: object) -> None:
    pairs = [("wq", PartitionSpec("data"))]
    rules = PartitionRules(pairs)
    assert PartitionRules({"wq": ["data"]}) == rules == PartitionRules.of(pairs)
    assert hash(PartitionRules.of(rules)) == hash(rules)
    assert PartitionRules.of(rules) is rules
    assert PartitionRules.of(rules, mesh=MESH) == PartitionRules(pairs, MESH)


def test_jax_is_not_imported() -> None:
    program = (
        "import sys; from shardpass.partition_rules import PartitionRules as R; "
        "r = R([('w', ['x'])], {'x': 2}); "
        "print(r.resolve(r.for_value('w', 'w', (4,)), (4,)).sharding, 'jax' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == '#sdy.sharding<mesh<["x"=2]>, [{"x"}]> False\n'


entries = st.lists(
    st.sampled_from([None, "data", "model", ("data", "model"), ("model", "data")]), max_size=3
)


@given(entries, st.lists(st.integers(1, 16), min_size=3, max_size=3).map(tuple))
def test_agrees_with_jax_on_what_divides_and_into_what(
    spec: list[object], shape: tuple[int, ...]
) -> None:
    """Same verdict and same shard shape as ``jax.sharding.NamedSharding.shard_shape``."""
    names = [n for e in spec for n in ((e,) if isinstance(e, str) else e or ())]
    assume(len(names) == len(set(names)))
    mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"))
    theirs = NamedSharding(mesh, PartitionSpec(*spec))
    try:
        expected = theirs.shard_shape(shape)
    except ValueError:
        with pytest.raises(ShardingError) as caught:
            resolve_spec(Spec.of(spec), MESH, shape)
        assert caught.value.slug == "indivisible"
    else:
        assert resolve_spec(Spec.of(spec), MESH, shape).sharding.shard_shape(shape) == expected


@given(entries, st.lists(st.integers(1, 16), min_size=3, max_size=3).map(tuple))
def test_replicate_gives_a_sharding_that_divides(
    spec: list[object], shape: tuple[int, ...]
) -> None:
    """Each dimension is cut as the spec says or not at all, and each exception is reported."""
    names = [n for e in spec for n in ((e,) if isinstance(e, str) else e or ())]
    assume(len(names) == len(set(names)))
    found = resolve_spec(Spec.of(spec), MESH, shape, indivisible="replicate")
    wanted = resolve_spec(Spec.of(spec), MESH, (8, 8, 8)).sharding
    assert len(found.sharding.shard_shape(shape)) == 3
    differing = [a != b for a, b in zip(found.sharding.dims, wanted.dims, strict=True)]
    assert sum(differing) == len(found.diagnostics)
    uneven = [size % tiles != 0 for size, tiles in zip(shape, wanted.tiles(), strict=True)]
    assert differing == uneven


def test_a_match_can_be_made_by_hand() -> None:
    rules = PartitionRules([("wq", ["data"])], MESH)
    assert rules.resolve(Match(0, rules.rules[0]), (8,)).sharding.dims_text() == '[{"data"}]'


@pytest.mark.parametrize("source", [3, 2.5, b"x", object(), PartitionSpec("x")])
def test_what_are_no_rules(source: object) -> None:
    with pytest.raises(ShardingError, match=r"^rules are ") as caught:
        PartitionRules.of(source)
    assert caught.value.slug == "bad-rules"
    assert f"of type {type(source).__name__}" in str(caught.value)
    assert "a list of pairs" in (caught.value.diagnostic.help or "")


def test_a_pair_that_is_no_rule_is_told_by_its_place() -> None:
    with pytest.raises(ShardingError) as caught:
        PartitionRules([("a", PartitionSpec("x")), ("b", 3), ("c", "x"), (4, PartitionSpec())])
    assert [(d.slug, d.message.split(" ")[1]) for d in caught.value.diagnostics] == [
        ("bad-spec", "2:"),
        ("bad-spec", "3:"),
        ("bad-rules", "4:"),
    ]


def test_an_axis_of_a_mesh_without_any() -> None:
    with pytest.raises(ShardingError) as caught:
        PartitionRules([("a", PartitionSpec("x"))], mesh={})
    assert caught.value.diagnostic.help == (
        "give a mesh with axes, as data=2,model=4, or rules that cut nothing"
    )
