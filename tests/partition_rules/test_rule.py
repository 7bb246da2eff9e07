"""A rule is checked when it is made, and knows what it speaks of."""

import re

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.partition_rules import Rule, Spec


def refused(**fields: object) -> tuple[str, str]:
    with pytest.raises(ShardingError) as caught:
        Rule(**fields)  # pyright: ignore[reportArgumentType]
    return caught.value.slug, caught.value.diagnostic.message


@pytest.mark.parametrize(
    ("pattern", "message", "column"),
    [
        ("a(b", "missing ), unterminated subpattern at position 1 of match", 2),
        ("*.kernel", "nothing to repeat at position 0 of match", 1),
        ("st['h'", "unterminated character set at position 2 of match", 3),
    ],
)
def test_a_regex_that_does_not_compile_has_its_position(
    pattern: str, message: str, column: int
) -> None:
    with pytest.raises(ShardingError) as caught:
        Rule(pattern, ["x"])
    excerpt = caught.value.diagnostic.excerpt
    assert excerpt is not None
    assert caught.value.slug == "bad-regex"
    assert (caught.value.diagnostic.message, excerpt.text, excerpt.column) == (
        message,
        pattern,
        column,
    )


@pytest.mark.parametrize(
    ("pattern", "help"),
    [
        (
            "(?<=a+)b",
            "write alternatives of one length each: (?<=ab|cd), or one look-behind for each",
        ),
        ("a(b", "put a backslash before a character that is meant as itself"),
        ("w]{2}[", "put a backslash before a character that is meant as itself"),
        (r"(a)\2", '"match" is a regular expression: see Python\'s re'),
        (r"\q", '"match" is a regular expression: see Python\'s re'),
    ],
)
def test_the_help_fits_the_fault_of_a_regex(pattern: str, help: str) -> None:
    with pytest.raises(ShardingError) as caught:
        Rule(pattern, ["x"])
    assert caught.value.diagnostic.help == help


def test_every_fault_of_a_rule_is_raised_at_once() -> None:
    with pytest.raises(ShardingError) as caught:
        Rule("a(", "x", rank="2", shape=8)  # pyright: ignore[reportArgumentType]
    assert [d.slug for d in caught.value.diagnostics] == [
        "bad-regex",
        "bad-spec",
        "bad-rules",
        "bad-rules",
    ]


def test_a_glob_is_told_how_to_become_a_regex() -> None:
    with pytest.raises(ShardingError) as caught:
        Rule(op="*.dot_general")
    assert caught.value.diagnostic.help == (
        'this is a regular expression, not a glob: write ".*" for any text'
    )


@pytest.mark.parametrize(
    ("fields", "slug", "message"),
    [
        (
            {},
            "bad-rules",
            'a rule needs a "match", "op", "loc", "rank" or "shape"',
        ),
        (
            {"match": "a", "op": "stablehlo.add"},
            "bad-rules",
            '"match" is about arguments and results, "op" about ops, a rule about one',
        ),
        ({"match": 3}, "bad-rules", '"match" is a regular expression, not 3 of type int'),
        (
            {"op": "dot_general"},
            "bad-rules",
            '"dot_general" is not the name of an op with its dialect, and would match none',
        ),
        ({"match": "a", "rank": True}, "bad-rules", '"rank" is a number of dimensions, not True'),
        ({"match": "a", "rank": -1}, "bad-rules", '"rank" is a number of dimensions, not -1'),
        ({"match": "a", "shape": 8}, "bad-rules", '"shape" is a list of sizes, not 8'),
        ({"match": "a", "shape": [-8]}, "bad-rules", '"shape" is a list of sizes, not [-8]'),
        (
            {"match": "a", "rank": 1, "shape": [8, 8]},
            "bad-rules",
            "rank = 1 and a shape of rank 2 never hold together",
        ),
        (
            {"match": "a", "rank": 1, "spec": ["x", "y"]},
            "rank-mismatch",
            "a spec of 2 entries for 1 dimension",
        ),
        (
            {"match": "a", "shape": [8, 8], "spec": ["x", [], []]},
            "rank-mismatch",
            "a spec of 3 entries for 2 dimensions",
        ),
        ({"match": "a", "rank": 0, "spec": ["x"]}, "scalar-spec", "a spec of 1 entry for a scalar"),
    ],
)
def test_what_cannot_hold(fields: dict[str, object], slug: str, message: str) -> None:
    assert refused(**fields) == (slug, message)


def test_a_compiled_pattern_keeps_its_flags() -> None:
    assert Rule(re.compile("kernel", re.IGNORECASE)).match == "(?i)kernel"
    assert Rule(re.compile("kernel")).match == "kernel"


@pytest.mark.parametrize(
    ("rule", "shape", "fits"),
    [
        (Rule("a"), (), True),
        (Rule("a", rank=2), (8, 8), True),
        (Rule("a", rank=2), (8,), False),
        (Rule("a", shape=[50304, "?"]), (50304, 768), True),
        (Rule("a", shape=[50304, "?"]), (768, 50304), False),
        (Rule("a", shape=[50304, "?"]), (50304,), False),
        (Rule("a", shape=[]), (), True),
    ],
)
def test_shape_conditions(rule: Rule, shape: tuple[int, ...], fits: bool) -> None:
    assert rule.fits_shape(shape) is fits


@pytest.mark.parametrize(
    ("pattern", "exact"),
    [
        (r"^opt\.0\.count$", True),
        (r"\Aopt\.0\.count\Z", True),
        (r"^opt\[0\]\.count$", True),
        (rf"^{re.escape('opt[0].count')}$", True),
        (r"opt\.0\.count", False),
        (r"^opt\.0\.count", False),
        (r"opt\.0\.count$", False),
        ("^opt.0.count$", False),
        (r"^opt\.0\.count\$", False),
        (r"(?i)^opt\.0\.count$", False),
        ("count", False),
        (r"\.count$", False),
        (r"opt\.\d\.count", False),
        ("opt.*count", False),
        ("opt|opt.0.count", False),
        ("", False),
    ],
)
def test_which_patterns_name_a_value_exactly(pattern: str, exact: bool) -> None:
    assert Rule(pattern).names_exactly("opt.0.count", "opt[0].count") is exact


def test_a_rule_prints_as_toml() -> None:
    rule = Rule(op="stablehlo.dot_general", loc=r"mlp\.fc", rank=2, spec=["x", "?"])
    assert str(rule) == (
        'op = "stablehlo.dot_general", loc = \'mlp\\.fc\', rank = 2, spec = ["x", "?"]'
    )


def test_equal_rules_are_equal() -> None:
    assert Rule("a", ["x"]) == Rule("a", ("x",))
    assert hash(Rule("a", ["x"])) == hash(Rule("a", ("x",)))
    assert Rule("a", ["x"]).with_spec(["y"]) == Rule("a", ["y"])
    assert Rule("a", ["x"]).spec == Spec.of(["x"])
