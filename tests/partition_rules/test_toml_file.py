"""Rules files: what they say, and how their faults are told."""

from pathlib import Path

import pytest

from shardpass.canon import MeshShape
from shardpass.diagnostics import Diagnostic, ShardingError, render
from shardpass.partition_rules import LogicalAxes, PartitionRules, Rule

WHOLE = r"""
conflicts = "error"
indivisible = "replicate"

[mesh]
data = 2
model = 4

[logical]
batch = "data"
embed = []
mlp = ["data", "model"]

[[rule]]
match = 'fc\.kernel$'
spec = [[], "mlp"]

[[rule]]
op = "stablehlo.dot_general"
loc = "mlp/"
rank = 3
shape = [8, "?", 16]
spec = ["batch", "?", "model"]
"""


def faults(text: str) -> list[Diagnostic]:
    with pytest.raises(ShardingError) as caught:
        PartitionRules.loads(text, "r.toml")
    return list(caught.value.diagnostics)


def fault(text: str) -> Diagnostic:
    (only,) = faults(text)
    return only


def test_a_whole_file() -> None:
    assert PartitionRules.loads(WHOLE) == PartitionRules(
        [
            Rule(r"fc\.kernel$", [[], "mlp"]),
            Rule(
                op="stablehlo.dot_general",
                loc="mlp/",
                rank=3,
                shape=[8, "?", 16],
                spec=["batch", "?", "model"],
            ),
        ],
        MeshShape.of(data=2, model=4),
        LogicalAxes.of({"batch": "data", "embed": [], "mlp": ["data", "model"]}),
        conflicts="error",
        indivisible="replicate",
    )


def test_a_file_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(b"\xef\xbb\xbf" + WHOLE.replace("\n", "\r\n").encode())
    assert PartitionRules.load(path) == PartitionRules.loads(WHOLE)
    assert PartitionRules.of(str(path)) == PartitionRules.loads(WHOLE)


def test_a_mesh_that_is_given_stands_in_for_the_files() -> None:
    rules = PartitionRules.loads(WHOLE, mesh={"model": 8, "data": 1})
    assert rules.mesh == MeshShape.of(model=8, data=1)


def test_a_rule_is_told_with_its_line() -> None:
    rules = PartitionRules.loads(WHOLE, "r.toml")
    assert rules.describe(0) == "rule 1 (r.toml:14): match = 'fc\\.kernel$', spec = [[], \"mlp\"]"
    (unused,) = rules.unused({0})
    assert str(unused.location) == "r.toml:18:1"


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        (
            '[mesh]\nx = 2\n\n[[rule]]\nmach = "w"\nspec = ["x"]',
            """\
r.toml:5:1: error[bad-rules]: unknown key "mach"
mach = "w"
^^^^
  help: did you mean "match"?""",
        ),
        (
            '[[rules]]\nmatch = "w"\nspec = []\n[[rule]]\nmatch = "w"\nspec = []',
            """\
r.toml:1:3: error[bad-rules]: unknown key "rules"
[[rules]]
  ^^^^^
  help: did you mean "rule"?""",
        ),
        (
            'conflict = "error"\n[[rule]]\nmatch = "w"\nspec = []',
            """\
r.toml:1:1: error[bad-rules]: unknown key "conflict"
conflict = "error"
^^^^^^^^
  help: did you mean "conflicts"?""",
        ),
        (
            "[[rule]]\nmatch = 'fc(\\.kernel'\nspec = []",
            """\
r.toml:2:12: error[bad-regex]: missing ), unterminated subpattern at position 2 of match
match = 'fc(\\.kernel'
           ^
  help: put a backslash before a character that is meant as itself""",
        ),
        (
            '[mesh]\ndata = 2\n[[rule]]\nmatch = "w"\nspec = [[], "dta"]',
            """\
r.toml:5:13: error[unknown-axis]: "dta" is not an axis of the mesh data=2
spec = [[], "dta"]
            ^^^^^
  help: did you mean "data"?""",
        ),
        (
            '[mesh]\ndata = 2\n[[rule]]\nmatch = "w"\nspec = [\n  "data",  # rows\n  "dta",\n]',
            """\
r.toml:7:3: error[unknown-axis]: "dta" is not an axis of the mesh data=2
  "dta",
  ^^^^^
  help: did you mean "data"?""",
        ),
        (
            '[[rule]]\nmatch = "w"\nspec = ["x", "x"]',
            """\
r.toml:3:14: error[duplicate-axis]: "x" stands twice in ["x", "x"]
spec = ["x", "x"]
             ^^^
  help: one axis can cut one dimension only; drop one of the two""",
        ),
        (
            "[mesh]\ndata = 0\n[[rule]]\nmatch = 'w'\nspec = []",
            """\
r.toml:2:1: error[bad-mesh]: mesh axis "data" has size 0, below 1
data = 0
^^^^
  help: write data = 1""",
        ),
        (
            "[mesh]\ndata = 2.5\n[[rule]]\nmatch = 'w'\nspec = []",
            """\
r.toml:2:1: error[bad-mesh]: the size of mesh axis "data" is a whole number, not 2.5
data = 2.5
^^^^
  help: write data = 2""",
        ),
        (
            "[[rule]]\nspec = []",
            """\
r.toml:1:1: error[bad-rules]: a rule needs a "match", "op", "loc", "rank" or "shape"
[[rule]]
^
  help: match = "" holds for every argument and result, op = ".*" for every op""",
        ),
        (
            "[[rule]]\nmatch = 'w'",
            """\
r.toml:1:1: error[bad-rules]: a rule without a spec
[[rule]]
^
  help: write spec = [] for replicated""",
        ),
        (
            "[[rule]]\nmatch = 'w'\nspec = 'x'",
            """\
r.toml:3:1: error[bad-spec]: a spec is a list with one entry per dimension, not the text "x"
spec = 'x'
^^^^
  help: write ["x"]""",
        ),
        (
            "[mesh]\ndata = 2\nmodel = x\n",
            """\
r.toml:3:9: error[syntax]: not TOML: invalid value
model = x
        ^""",
        ),
        (
            '[[rule]]\nmatch = "fc\\.kernel"\nspec = []',
            """\
r.toml:2:12: error[syntax]: not TOML: unescaped '\\' in a string
match = "fc\\.kernel"
           ^
  help: regular expressions go in single quotes: match = 'kernel\\.value$'""",
        ),
        (
            "[mesh]\ndata = 2",
            """\
r.toml:1:1: error[bad-rules]: the file has no rule
[mesh]
^
  help: write [[rule]]""",
        ),
        (
            "indivisible = 'pad'\n[[rule]]\nmatch = 'w'\nspec = []",
            """\
r.toml:1:1: error[bad-rules]: indivisible is 'error' or 'replicate', not 'pad'
indivisible = 'pad'
^^^^^^^^^^^""",
        ),
        (
            "mesh = 8\n[[rule]]\nmatch = 'w'\nspec = []",
            """\
r.toml:1:1: error[bad-rules]: mesh is a table, not 8
mesh = 8
^^^^
  help: write [mesh] and lines like data = 2""",
        ),
        (
            "[rule]\nmatch = 'w'\nspec = []",
            """\
r.toml:1:2: error[bad-rules]: rules are tables
[rule]
 ^^^^
  help: write [[rule]]""",
        ),
        (
            "[mesh]\nx = 2\n[logical]\nembed = 'y'\n[[rule]]\nmatch = 'w'\nspec = ['embed']",
            """\
r.toml:4:1: error[unknown-axis]: logical name "embed" maps to "y", which is not an axis of the \
mesh x=2
embed = 'y'
^^^^^""",
        ),
        (
            "[logical]\nembed = 3\n[[rule]]\nmatch = 'w'\nspec = ['embed']",
            """\
r.toml:2:1: error[bad-rules]: logical name "embed" maps to 3, neither a mesh axis nor a list of them
embed = 3
^^^^^
  help: write embed = "model", or [] for replicated""",
        ),
        (
            "[[rule]]\nmatch = 'w'\nrank = '2'\nspec = []",
            """\
r.toml:3:1: error[bad-rules]: "rank" is a number of dimensions, not '2'
rank = '2'
^^^^
  help: write rank = 2""",
        ),
        (
            "[[rule]]\nmatch = 'w'\nrank = 1\nspec = ['x', 'y']",
            """\
r.toml:4:1: error[rank-mismatch]: a spec of 2 entries for 1 dimension
spec = ['x', 'y']
^^^^
  help: drop 1, or narrow the rule with rank = 2""",
        ),
    ],
)
def test_faults(text: str, rendered: str) -> None:
    assert render(fault(text)) == rendered


def test_an_entry_that_cuts_nothing_is_told_with_its_line() -> None:
    text = '[mesh]\ndata = 2\n[logical]\na = "data"\n[[rule]]\nmatch = "w"\nspec = ["a", "data"]'
    rules = PartitionRules.loads(text, "r.toml")
    assert rules.losses(()) == ()
    (lost,) = rules.losses({0})
    assert (
        render(lost)
        == """\
r.toml:7:14: warning[axis-taken]: rule 1, dimension 1: "data" cuts nothing, another entry of the \
spec has the axis
spec = ["a", "data"]
             ^^^^^^
  note: rule 1 (r.toml:5): match = "w", spec = ["a", "data"]
  help: drop one of the two entries, or map the logical name to another axis"""
    )


def test_an_axis_twice_in_the_mesh() -> None:
    shown = fault("[mesh]\nx = 2\nx = 4\n")
    assert (shown.slug, shown.location and shown.location.line) == ("syntax", 3)


def test_a_file_that_stops_too_early() -> None:
    shown = fault("[mesh]\nx = 2\n[[rule]]\nspec = [")
    assert (shown.slug, str(shown.location)) == ("syntax", "r.toml:4:9")


def test_all_faults_come_at_once_in_the_order_of_lines() -> None:
    found = faults(
        """\
conflicts = "last"
[mesh]
x = 0
[[rule]]
match = "a("
spec = []
[[rule]]
match = "a"
spec = [3]
[[rule]]
op = "stablehlo.add"
match = "a"
spec = []
"""
    )
    assert [(d.slug, d.location and d.location.line) for d in found] == [
        ("bad-rules", 1),
        ("bad-mesh", 3),
        ("bad-regex", 5),
        ("bad-spec", 9),
        ("bad-rules", 10),
    ]


def test_all_faults_of_one_table_come_at_once() -> None:
    found = faults(
        """\
[mesh]
data = "2"
model = 4.5
[[rule]]
match = 5
spec = "data"
rank = "2"
[[rule]]
mach = "a"
shape = 3
spec = [3, "x", 4]
[[rule]]
mach = "a"
[[rule]]
strange = 1
"""
    )
    assert [(d.location and d.location.line, d.slug, d.message) for d in found] == [
        (2, "bad-mesh", "the size of mesh axis \"data\" is a whole number, not '2'"),
        (3, "bad-mesh", 'the size of mesh axis "model" is a whole number, not 4.5'),
        (5, "bad-rules", '"match" is a regular expression, not 5 of type int'),
        (
            6,
            "bad-spec",
            'a spec is a list with one entry per dimension, not the text "data"',
        ),
        (7, "bad-rules", "\"rank\" is a number of dimensions, not '2'"),
        (9, "bad-rules", 'unknown key "mach"'),
        (10, "bad-rules", '"shape" is a list of sizes, not 3'),
        (11, "bad-spec", "entry 0 of a spec cannot hold 3 of type int"),
        (11, "bad-spec", "entry 2 of a spec cannot hold 4 of type int"),
        (13, "bad-rules", 'unknown key "mach"'),
        (15, "bad-rules", 'unknown key "strange"'),
    ]


def test_all_unknown_axes_of_a_spec_come_at_once() -> None:
    found = faults('[mesh]\nx = 2\n[[rule]]\nmatch = "w"\nspec = ["y", "x", ["z", "y:(1)2"]]')
    assert [(str(d.location), d.message) for d in found] == [
        ("r.toml:5:9", '"y" is not an axis of the mesh x=2'),
        ("r.toml:5:20", '"z" is not an axis of the mesh x=2'),
        ("r.toml:5:25", '"y" is not an axis of the mesh x=2'),
    ]


def test_an_empty_file_has_no_line_to_show() -> None:
    assert render(fault("")) == (
        "r.toml:1:1: error[bad-rules]: the file has no rule\n  help: write [[rule]]"
    )


def test_rules_written_inline() -> None:
    rules = PartitionRules.loads('rule = [{ match = "w", spec = ["x"] }]', mesh={"x": 2})
    assert rules.rules == (Rule("w", ["x"]),)
    shown = fault('\nrule = [{ match = "w(", spec = [] }]')
    assert (shown.slug, str(shown.location)) == ("bad-regex", "r.toml:2:21")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ShardingError) as missing:
        PartitionRules.load(tmp_path / "none.toml")
    assert missing.value.slug == "unreadable"
    assert missing.value.diagnostic.message == (
        f"cannot read the rules file {tmp_path / 'none.toml'}: No such file or directory"
    )
    (tmp_path / "bytes.toml").write_bytes(b"[mesh]\nx = 2 # \xff\n")
    with pytest.raises(ShardingError) as garbled:
        PartitionRules.load(tmp_path / "bytes.toml")
    shown = garbled.value.diagnostic
    assert (shown.slug, shown.location and shown.location.line) == ("unreadable", 2)
    assert shown.message.endswith("bytes.toml is not text: byte 15 is not UTF-8")
    with pytest.raises(ShardingError) as folder:
        PartitionRules.load(tmp_path)
    assert folder.value.slug == "unreadable"


@pytest.mark.parametrize("name", ["mlp/rules.toml", "gpt2/rules.toml", "gpt2/rules-scan.toml"])
def test_the_examples_read(name: str) -> None:
    rules = PartitionRules.load(Path(__file__).parents[2] / "examples" / name)
    assert rules.mesh == MeshShape.of(data=2, model=4)
    assert all(rule.match is not None for rule in rules.rules)


def test_the_text_of_an_error_names_file_and_line(tmp_path: Path) -> None:
    """As a library user sees it, who has nothing but the exception."""
    (tmp_path / "rules.toml").write_text(
        '[mesh]\ndata = 2\n[[rule]]\nmatch = "x"\nspec = ["dta"]\n'
    )
    with pytest.raises(ShardingError) as caught:
        PartitionRules.load(tmp_path / "rules.toml")
    assert str(caught.value).startswith(
        f'{tmp_path / "rules.toml"}:5:9: "dta" is not an axis of the mesh data=2\n  spec = ["dta"]'
    )


def test_the_mesh_that_another_takes_the_place_of() -> None:
    text = '[mesh]\nx = 2\n[[rule]]\nmatch = "w"\nspec = ["x"]\n'
    assert PartitionRules.loads(text).written_mesh is None
    assert PartitionRules.loads(text, mesh={"x": 2}).written_mesh is None
    found = PartitionRules.loads(text, mesh={"x": 4})
    assert (found.mesh, found.written_mesh) == (MeshShape.of(x=4), MeshShape.of(x=2))
    # Through all the hands that rules go through, and back on their own mesh.
    again = PartitionRules.of(found, mesh={"x": 8})
    assert (again.mesh, again.written_mesh) == (MeshShape.of(x=8), MeshShape.of(x=2))
    assert PartitionRules.of(again, mesh={"x": 2}).written_mesh is None
    assert again == PartitionRules.loads(text.replace("2", "8"))
    # Whoever puts them on another mesh by hand knows.
    assert PartitionRules.loads(text).with_mesh({"x": 4}).written_mesh is None
