"""Which rule a value or an op gets."""

import time

import pytest

from shardpass.partition_rules import PartitionRules, Rule

PATH, RAW = "st.h.0.fc.kernel", "st['h'][0]['fc']['kernel'].value"


def index(rules: PartitionRules, *query: object) -> int | None:
    found = rules.for_value(*query)  # pyright: ignore[reportArgumentType]
    return found.index if found else None


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        (r"fc\.kernel$", True),
        (r"\['fc'\]\['kernel'\]", True),
        ("^st", True),
        ("^fc", False),
        ("", True),
        (r"h\.\d+\.", True),
        ("bias", False),
        (r"\.value$", True),
    ],
)
def test_a_regex_is_searched_in_both_spellings(pattern: str, matches: bool) -> None:
    found = PartitionRules([(pattern, ["x"])]).for_value(PATH, RAW, (8, 8))
    assert (found is not None) is matches


def test_the_first_rule_wins_and_the_others_are_told() -> None:
    rules = PartitionRules([("bias", []), ("fc", ["x"]), ("kernel", ["y"]), ("", [])])
    found = rules.for_value(PATH, RAW, (8, 8))
    assert found is not None
    assert (found.index, found.others, found.exact) == (1, (2, 3), False)


def test_rank_and_shape_narrow_a_rule() -> None:
    rules = PartitionRules(
        [
            Rule("kernel", ["x", "y"], rank=2),
            Rule("kernel", ["x"], shape=["?", 3]),
            Rule("kernel", ["x"], shape=[4, "?", 3]),
        ]
    )
    assert index(rules, PATH, RAW, (8, 8)) == 0
    assert index(rules, PATH, RAW, (4, 4, 3)) == 2
    assert index(rules, PATH, RAW, (8,)) is None


def test_value_rules_do_not_see_ops_nor_the_reverse() -> None:
    rules = PartitionRules([Rule("", []), Rule(op=".*", spec=[])])
    value, op = rules.for_value("a", "a", (8,)), rules.for_op("stablehlo.add", (), (8,))
    assert value is not None
    assert op is not None
    assert (value.index, value.others, op.index, op.others) == (0, (), 1, ())


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("stablehlo.dot_general", "stablehlo.dot_general", True),
        ("stablehlo.dot", "stablehlo.dot_general", False),
        ("stablehlo.*", "stablehlo.dot_general", True),
        (r"stablehlo\.(dot_general|convolution)", "stablehlo.convolution", True),
        (r".*\.dot_general", "stablehlo.dot_general", True),
        ("stablehlo.dot_general", "chlo.dot_general", False),
    ],
)
def test_op_is_a_regex_for_the_whole_name(pattern: str, name: str, matches: bool) -> None:
    rules = PartitionRules([Rule(op=pattern, spec=["x"])])
    assert rules.concerns_op(name) is matches
    assert (rules.for_op(name, (), (8, 8)) is not None) is matches


def test_loc_is_searched_in_each_name_of_a_location() -> None:
    rules = PartitionRules([Rule(loc=r"mlp/|model\.py:12\b", spec=["x"])])
    assert rules.for_op("stablehlo.add", ("jit(f)/attn/add", "model.py:9"), (8,)) is None
    assert rules.for_op("stablehlo.add", ("jit(f)/mlp/add", "model.py:9"), (8,)) is not None
    assert rules.for_op("stablehlo.add", ("jit(f)/attn/add", "model.py:12"), (8,)) is not None


def test_op_and_loc_must_both_hold() -> None:
    rules = PartitionRules([Rule(op="stablehlo.add", loc="mlp", spec=["x"])])
    assert rules.for_op("stablehlo.add", ("mlp",), (8,)) is not None
    assert rules.for_op("stablehlo.multiply", ("mlp",), (8,)) is None
    assert rules.for_op("stablehlo.add", ("attn",), (8,)) is None


def test_whether_ops_and_locations_are_needed_at_all() -> None:
    plain = PartitionRules([("a", [])])
    assert (plain.has_op_rules, plain.concerns_op("stablehlo.add")) == (False, False)
    by_name = PartitionRules([Rule(op="stablehlo.add", spec=[])])
    assert (by_name.has_op_rules, by_name.reads_locations("stablehlo.add")) == (True, False)
    by_place = PartitionRules([Rule(op="stablehlo.add", loc="mlp", spec=[])])
    assert by_place.reads_locations("stablehlo.add") is True
    assert by_place.reads_locations("stablehlo.multiply") is False


def test_ten_thousand_ops_take_milliseconds() -> None:
    """20 rules, 10,000 ops of 50 names; measured 3 ms here, with room for a busy machine."""
    rules = PartitionRules(
        [Rule(op="stablehlo.dot_general", loc=f"layer_{i}/", spec=["x"]) for i in range(20)]
    )
    ops = [
        (
            "stablehlo.dot_general" if i % 50 == 0 else f"stablehlo.op_{i % 50}",
            (f"layer_{i % 20}/",),
        )
        for i in range(10_000)
    ]
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        found = [rules.for_op(name, names, (8, 8)) for name, names in ops]
        best = min(best, time.perf_counter() - start)
        assert sum(f is not None for f in found) == 200
    assert best < 0.05


def test_a_rule_of_shapes_alone_is_about_arguments_and_results() -> None:
    rules = PartitionRules([Rule(rank=2, spec=["x"]), Rule(shape=[8], spec=[])], mesh={"x": 2})
    assert not rules.has_op_rules
    found = rules.for_value("params.w", "params['w']", (8, 16))
    assert found is not None
    assert (found.index, found.exact) == (0, False)
    vector = rules.for_value("b", "b", (8,))
    assert vector is not None
    assert vector.index == 1
    assert rules.for_value("b", "b", (9,)) is None
    assert rules.for_op("stablehlo.add", (), (8, 16)) is None
