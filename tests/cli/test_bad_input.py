"""Bad input on the command line: one clear message, a non-zero exit, nothing half done.

Each case goes through the real program. What is compared is the whole of standard error, since that
is what a person reads: no traceback, no log line of XLA, no second message. What each case says
stands in ``told/``, a file for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.conftest import MODULE, RULES, Run

SHARD = ("shard", "m.mlir", "-o", "out.mlir", "--rules", "r.toml")
TOLD = Path(__file__).parent / "told"
TILED = """\
func.func @main(%a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"} loc("w"))
    -> tensor<8xf32> {
  return %a : tensor<8xf32>
}
"""
DYNAMIC = """\
func.func @main(%a: tensor<?x16xf32> loc("p.w")) -> tensor<?x16xf32> {
  return %a : tensor<?x16xf32>
}
"""


def rule(text: str) -> dict[str, str]:
    """The rules with ``text`` for the first one."""
    first = """match = '\\.w$'\nspec = ["data", "model"]"""
    assert first in RULES
    return {"r.toml": RULES.replace(first, text)}


@dataclass(frozen=True)
class Case:
    """Arguments, files beside ``m.mlir`` and ``r.toml``, and the exit code."""

    arguments: tuple[str, ...]
    files: dict[str, str | bytes] = field(default_factory=dict)
    code: int = 1


CASES: dict[str, Case] = {
    "a-rule-with-an-unknown-key": Case(
        SHARD,
        rule('mach = "w"\nspec = ["data"]'),
    ),
    "a-rule-with-a-bad-regex": Case(
        SHARD,
        rule("match = '(w'\nspec = [\"data\"]"),
    ),
    "an-unknown-axis": Case(
        SHARD,
        rule('match = "w"\nspec = ["modle"]'),
    ),
    "an-axis-twice": Case(
        SHARD,
        rule('match = "w"\nspec = ["data", "data"]'),
    ),
    "dimension-19-over-4": Case(
        SHARD,
        rule('match = "odd"\nspec = ["model"]'),
    ),
    "a-spec-longer-than-the-rank": Case(
        SHARD,
        rule('match = "w"\nspec = ["data", "model", []]'),
    ),
    "an-explicit-spec-on-a-scalar": Case(
        SHARD,
        rule('match = "^lr$"\nspec = ["data"]'),
    ),
    "rules-that-are-not-toml": Case(
        SHARD,
        {"r.toml": "[mesh\ndata = 2\n"},
    ),
    "rules-that-are-not-text": Case(
        SHARD,
        {"r.toml": b'[mesh]\ndata = "\xff"\n'},
    ),
    "no-rules-file": Case(
        (
            "shard",
            "m.mlir",
            "-o",
            "out.mlir",
            "--rules",
            "nope.toml",
        ),
    ),
    "truncated-text": Case(
        SHARD,
        {"m.mlir": MODULE[:400]},
    ),
    "garbage-bytes": Case(
        SHARD,
        {"m.mlir": b"\x00\xff\x01garbage"},
    ),
    "garbage-text": Case(
        SHARD,
        {"m.mlir": "garbage\n"},
    ),
    "truncated-bytecode": Case(
        SHARD,
        {"m.mlir": b"ML\xefR\rMLIR21\x00\x01\x02"},
    ),
    "an-empty-file": Case(
        SHARD,
        {"m.mlir": ""},
    ),
    "no-module": Case(
        (
            "report",
            "nope.mlir",
        ),
    ),
    "a-folder-for-a-module": Case(
        (
            "report",
            ".",
        ),
    ),
    "mesh-data2-model": Case(
        (
            *SHARD,
            "--mesh",
            "data=2,model",
        ),
        code=2,
    ),
    "mesh-data2-model4": Case(
        (
            *SHARD,
            "--mesh",
            "data=2;model=4",
        ),
        code=2,
    ),
    "mesh-data0": Case(
        (
            *SHARD,
            "--mesh",
            "data=0",
        ),
        code=2,
    ),
    "mesh-data2-data4": Case(
        (
            *SHARD,
            "--mesh",
            "data=2,data=4",
        ),
        code=2,
    ),
    "mesh-nothing": Case(
        (
            *SHARD,
            "--mesh",
            "",
        ),
        code=2,
    ),
    "a-mesh-without-the-axis-of-a-rule": Case(
        (
            *SHARD,
            "--mesh",
            "data=2,tensor=4",
        ),
    ),
    "a-dynamic-shape-cut": Case(
        SHARD,
        {"m.mlir": DYNAMIC},
    ),
    "a-native-pipeline-under-the-wrong-op": Case(
        (
            *SHARD,
            "--pipeline",
            "func.func(sdy-propagation-pipeline)",
        ),
        code=2,
    ),
    "a-native-pass-under-the-wrong-op": Case(
        (
            *SHARD,
            "--pipeline",
            "func.func(sdy-close-shardings)",
        ),
        code=2,
    ),
    "our-pass-under-the-wrong-op": Case(
        (
            *SHARD,
            "--pipeline",
            "func.func(sp-annotate)",
        ),
        code=2,
    ),
    "an-unknown-pass": Case(
        (
            *SHARD,
            "--pipeline",
            "sp-annotate,sp-propogate",
        ),
        code=2,
    ),
    "an-unknown-option-of-a-pass": Case(
        (
            *SHARD,
            "--pipeline",
            "sp-annotate{ruels=r.toml}",
        ),
        code=2,
    ),
    "no-output-folder": Case(
        (
            "shard",
            "m.mlir",
            "-o",
            "no/out.mlir",
            "--rules",
            "r.toml",
        ),
    ),
    "a-full-disk": Case(
        (
            "shard",
            "m.mlir",
            "-o",
            "/dev/full",
            "--rules",
            "r.toml",
        ),
    ),
    "garbage-mhlo-sharding-sharded": Case(
        SHARD,
        {"m.mlir": TILED.replace("{devices=[8]<=[8]}", "{devices=[banana")},
    ),
    "garbage-mhlo-sharding-run": Case(
        (
            "run",
            "m.mlir",
            "--devices",
            "8",
        ),
        {"m.mlir": TILED.replace("{devices=[8]<=[8]}", "{devices=[banana")},
    ),
    "garbage-mhlo-sharding-reported": Case(
        (
            "report",
            "m.mlir",
        ),
        {"m.mlir": TILED.replace("{devices=[8]<=[8]}", "{devices=[banana")},
    ),
    "mhlo-sharding-through-shardy": Case(
        (
            "run",
            "m.mlir",
            "--partitioner",
            "shardy",
        ),
        {"m.mlir": TILED},
    ),
    "fewer-devices-than-the-sharding-has": Case(
        (
            "run",
            "m.mlir",
            "--devices",
            "3",
        ),
        {"m.mlir": TILED},
    ),
    "a-device-twice": Case(
        (
            "report",
            "m.mlir",
        ),
        {"m.mlir": 'sdy.mesh @m = <["x"=2], device_ids=[0, 0]>\n' + MODULE},
    ),
    "inputs-that-are-no-npz": Case(
        (
            "run",
            "m.mlir",
            "--inputs",
            "x.npz",
        ),
        {"x.npz": b"nope"},
    ),
    "nothing-that-says-how": Case(
        (
            "shard",
            "m.mlir",
            "-o",
            "out.mlir",
        ),
        code=2,
    ),
    "an-unknown-command": Case(
        ("shrad",),
        code=2,
    ),
    "an-unknown-option": Case(
        (
            "shard",
            "m.mlir",
            "--ruels",
            "r.toml",
        ),
        code=2,
    ),
    "a-pass-that-opt-does-not-know": Case(
        (
            "opt",
            "m.mlir",
            "--sp-anotate",
        ),
        code=2,
    ),
    "options-that-the-pipeline-has-as-well": Case(
        (
            *SHARD,
            "--mesh",
            "data=1,model=2",
            "--pipeline",
            "sp-annotate{rules=r.toml mesh=data=8,model=1}",
        ),
        code=2,
    ),
    "options-that-no-pass-takes": Case(
        (
            *SHARD,
            "--mesh",
            "data=2,model=4",
            "--conflicts",
            "error",
            "--indivisible",
            "replicate",
            "--pipeline",
            "sp-strip",
        ),
        code=2,
    ),
    "a-notation-that-the-pipeline-does-not-write": Case(
        (
            *SHARD,
            "--notation",
            "sdy",
            "--pipeline",
            "sp-annotate,sp-export-mhlo",
        ),
        code=2,
    ),
    "an-empty-pipeline": Case(
        (
            *SHARD,
            "--pipeline",
            "",
        ),
        code=2,
    ),
    "a-mesh-in-full-width-digits": Case(
        (
            *SHARD,
            "--mesh",
            "data=\N{FULLWIDTH DIGIT TWO}",
        ),
        code=2,
    ),
    "devices-without-a-compile": Case(
        (
            "report",
            "m.mlir",
            "--devices",
            "8",
        ),
        code=2,
    ),
    "a-partitioner-without-a-compile": Case(
        (
            "report",
            "m.mlir",
            "--partitioner",
            "gspmd",
        ),
        code=2,
    ),
    "a-seed-for-inputs-that-are-given": Case(
        (
            "run",
            "m.mlir",
            "--inputs",
            "x.npz",
            "--seed",
            "3",
        ),
        code=2,
    ),
    "rules-from-standard-input": Case(
        (
            "shard",
            "m.mlir",
            "-o",
            "out.mlir",
            "--rules",
            "-",
        ),
        code=2,
    ),
    "results-to-standard-output": Case(
        (
            "run",
            "m.mlir",
            "--save-results",
            "-",
        ),
        code=2,
    ),
    "inputs-from-standard-input": Case(
        (
            "run",
            "m.mlir",
            "--inputs",
            "-",
        ),
        code=2,
    ),
    "an-empty-rules-file": Case(
        SHARD,
        {"r.toml": ""},
    ),
    "rules-with-several-faults": Case(
        SHARD,
        {
            "r.toml": '[mesh]\ndata = "2"\nmodel = 4.5\n'
            '[[rule]]\nmatch = 5\nspec = "data"\nrank = "2"\n'
        },
    ),
    "two-modules": Case(
        SHARD,
        {"m.mlir": MODULE + MODULE.replace("@step", "@other")},
    ),
    "an-option-that-opt-does-not-know": Case(
        (
            "opt",
            "m.mlir",
            "--split-inputs",
        ),
        code=2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_message_and_nothing_written(name: str, shardpass: Run, folder: Path) -> None:
    case = CASES[name]
    for file, content in case.files.items():
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = shardpass(*case.arguments)
    assert done.stderr == (TOLD / f"{name}.txt").read_text()
    assert (done.returncode, done.stdout) == (case.code, "")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_every_text_has_its_case() -> None:
    assert {path.stem for path in TOLD.iterdir()} == CASES.keys()


def test_the_good_input_of_these_tests_is_good(shardpass: Run, folder: Path) -> None:
    done = shardpass(*SHARD)
    assert (done.returncode, done.stdout, done.stderr) == (0, "out.mlir\n", "")
    assert 'sdy.mesh @mesh = <["data"=2, "model"=4]>' in (folder / "out.mlir").read_text()


def test_an_old_output_stays_whole_where_the_new_one_fails(shardpass: Run, folder: Path) -> None:
    (folder / "out.mlir").write_text("old")
    (folder / "r.toml").write_text(rule('match = "odd"\nspec = ["model"]')["r.toml"])
    assert shardpass(*SHARD).returncode == 1
    assert (folder / "out.mlir").read_text() == "old"


def test_diagnostics_as_json_lines(shardpass: Run) -> None:
    done = shardpass("--diagnostics", "json", *SHARD, "--mesh", "data=2,data=4")
    assert done.returncode == 2
    assert done.stderr == (
        '{"severity": "error", "slug": "bad-mesh", '
        '"message": "axis \\"data\\" stands 2 times in the mesh data=2, data=4", '
        '"help": "give each axis a name of its own"}\n'
    )
