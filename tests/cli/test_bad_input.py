"""Bad input on the command line: one clear message, a non-zero exit, nothing half done.

Each case goes through the real program. What is compared is the whole of standard error, since that
is what a person reads: no traceback, no log line of XLA, no second message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.conftest import MODULE, RULES, Run

SHARD = ("shard", "m.mlir", "-o", "out.mlir", "--rules", "r.toml")
TILED = """\
func.func @main(%a: tensor<8xf32> {mhlo.sharding = "{devices=[8]<=[8]}"} loc("w"))
    -> tensor<8xf32> {
  return %a : tensor<8xf32>
}
"""


def rule(text: str) -> dict[str, str]:
    """The rules with ``text`` for the first one."""
    first = """match = '\\.w$'\nspec = ["data", "model"]"""
    assert first in RULES
    return {"r.toml": RULES.replace(first, text)}


@dataclass(frozen=True)
class Case:
    """Arguments, files beside ``m.mlir`` and ``r.toml``, and all of standard error."""

    arguments: tuple[str, ...]
    told: str
    files: dict[str, str | bytes] = field(default_factory=dict)
    code: int = 1


CASES: dict[str, Case] = {
    "a rule with an unknown key": Case(
        SHARD,
        (
            'r.toml:6:1: error[bad-rules]: unknown key "mach"\n'
            'mach = "w"\n'
            "^^^^\n"
            '  help: did you mean "match"?\n'
        ),
        rule('mach = "w"\nspec = ["data"]'),
    ),
    "a rule with a bad regex": Case(
        SHARD,
        (
            "r.toml:6:10: error[bad-regex]: missing ), unterminated subpattern at position 0 of match\n"
            "match = '(w'\n"
            "         ^\n"
            "  help: put a backslash before a character that is meant as itself\n"
        ),
        rule("match = '(w'\nspec = [\"data\"]"),
    ),
    "an unknown axis": Case(
        SHARD,
        (
            'r.toml:7:9: error[unknown-axis]: "modle" is not an axis of the mesh data=2, model=4\n'
            'spec = ["modle"]\n'
            "        ^^^^^^^\n"
            '  help: did you mean "model"?\n'
        ),
        rule('match = "w"\nspec = ["modle"]'),
    ),
    "an axis twice": Case(
        SHARD,
        (
            'r.toml:7:17: error[duplicate-axis]: "data" stands twice in ["data", "data"]\n'
            'spec = ["data", "data"]\n'
            "                ^^^^^^\n"
            "  help: one axis can cut one dimension only; drop one of the two\n"
        ),
        rule('match = "w"\nspec = ["data", "data"]'),
    ),
    "dimension 19 over 4": Case(
        SHARD,
        (
            'm.mlir:2:3: error[indivisible]: argument 1 ("params.odd"), dimension 0: 19 elements into 4 pieces\n'
            "  func.func public @main(\n"
            "  ^\n"
            '  note: sharding is [{"model"}] on mesh data=2, model=4\n'
            '  note: rule 1 (r.toml:5): match = "odd", spec = ["model"]\n'
            '  help: pad to 20 (nearest sizes that work: 16 and 20), drop an axis, or set indivisible = "replicate"\n'
            "m.mlir:2:3: warning[unmatched]: no rule matches 1 argument: params.w\n"
            "  func.func public @main(\n"
            "  ^\n"
            "  help: propagation decides about them; add a rule to say otherwise\n"
            "1 error, 1 warning\n"
        ),
        rule('match = "odd"\nspec = ["model"]'),
    ),
    "a spec longer than the rank": Case(
        SHARD,
        (
            'm.mlir:2:3: error[rank-mismatch]: argument 0 ("params.w"): a spec of 3 entries for 2 dimensions\n'
            '["data", "model", []]\n'
            "^^^^^^^^^^^^^^^^^^^^^\n"
            "  note: shape is 8x16\n"
            '  note: rule 1 (r.toml:5): match = "w", spec = ["data", "model", []]\n'
            "  help: drop 1, or narrow the rule with rank = 3\n"
        ),
        rule('match = "w"\nspec = ["data", "model", []]'),
    ),
    "an explicit spec on a scalar": Case(
        SHARD,
        (
            'm.mlir:2:3: error[scalar-spec]: argument 2 ("lr"): a spec of 1 entry for a scalar\n'
            '["data"]\n'
            "^^^^^^^^\n"
            "  note: shape is that of a scalar\n"
            '  note: rule 1 (r.toml:5): match = "^lr$", spec = ["data"]\n'
            "  help: a scalar can only be replicated: write spec = []\n"
            "m.mlir:2:3: warning[unmatched]: no rule matches 1 argument: params.w\n"
            "  func.func public @main(\n"
            "  ^\n"
            "  help: propagation decides about them; add a rule to say otherwise\n"
            "1 error, 1 warning\n"
        ),
        rule('match = "^lr$"\nspec = ["data"]'),
    ),
    "rules that are not TOML": Case(
        SHARD,
        (
            "r.toml:1:6: error[syntax]: not TOML: expected ']' at the end of a table declaration\n"
            "[mesh\n"
            "     ^\n"
        ),
        {"r.toml": "[mesh\ndata = 2\n"},
    ),
    "rules that are not text": Case(
        SHARD,
        (
            "r.toml:2: error[unreadable]: the rules file r.toml is not text: byte 15 is not UTF-8\n"
            "  help: save it as UTF-8\n"
        ),
        {"r.toml": b'[mesh]\ndata = "\xff"\n'},
    ),
    "no rules file": Case(
        (
            "shard",
            "m.mlir",
            "-o",
            "out.mlir",
            "--rules",
            "nope.toml",
        ),
        ("error[unreadable]: cannot read the rules file nope.toml: No such file or directory\n"),
    ),
    "truncated text": Case(
        SHARD,
        (
            "m.mlir:8:16: error[mlir]: expected non-function type\n"
            "    return %1 : \n"
            "               ^\n"
        ),
        {"m.mlir": MODULE[:400]},
    ),
    "garbage bytes": Case(
        SHARD,
        ("error[unreadable]: m.mlir is neither MLIR bytecode nor text: byte 1 is not UTF-8\n"),
        {"m.mlir": b"\x00\xff\x01garbage"},
    ),
    "garbage text": Case(
        SHARD,
        (
            "m.mlir:1:1: error[mlir]: custom op 'garbage' is unknown (tried 'builtin.garbage' as well)\n"
            "garbage\n"
            "^\n"
        ),
        {"m.mlir": "garbage\n"},
    ),
    "truncated bytecode": Case(
        SHARD,
        (
            "m.mlir: error[mlir]: attempting to parse 1 bytes when only 0 remain\n"
            "  note: in bytecode version 6 produced by: MLIR21\n"
        ),
        {"m.mlir": b"ML\xefR\rMLIR21\x00\x01\x02"},
    ),
    "an empty file": Case(
        SHARD,
        ("error[unreadable]: m.mlir is empty\n"),
        {"m.mlir": ""},
    ),
    "no module": Case(
        (
            "report",
            "nope.mlir",
        ),
        ("error[unreadable]: cannot read nope.mlir: no such file or directory\n"),
    ),
    "a folder for a module": Case(
        (
            "report",
            ".",
        ),
        ("error[unreadable]: cannot read .: is a directory\n"),
    ),
    "mesh 'data=2,model'": Case(
        (
            *SHARD,
            "--mesh",
            "data=2,model",
        ),
        (
            "error[bad-mesh]: expected an axis as name=size\n"
            "data=2,model\n"
            "       ^\n"
            "  help: write it like data=2,model=4\n"
        ),
    ),
    "mesh 'data=2;model=4'": Case(
        (
            *SHARD,
            "--mesh",
            "data=2;model=4",
        ),
        (
            "error[bad-mesh]: expected a comma or the end\n"
            "data=2;model=4\n"
            "      ^\n"
            "  help: write it like data=2,model=4\n"
        ),
    ),
    "mesh 'data=0'": Case(
        (
            *SHARD,
            "--mesh",
            "data=0",
        ),
        ('error[bad-mesh]: axis "data" has size 0, below 1\n'),
    ),
    "mesh 'data=2,data=4'": Case(
        (
            *SHARD,
            "--mesh",
            "data=2,data=4",
        ),
        ('error[bad-mesh]: axis "data" stands 2 times in the mesh data=2, data=4\n'),
    ),
    "mesh ''": Case(
        (
            *SHARD,
            "--mesh",
            "",
        ),
        ("error[bad-mesh]: the mesh is empty\n  help: write it like data=2,model=4\n"),
    ),
    "a mesh without the axis of a rule": Case(
        (
            *SHARD,
            "--mesh",
            "data=2,tensor=4",
        ),
        (
            'r.toml:7:17: error[unknown-axis]: "model" is not an axis of the mesh data=2, tensor=4\n'
            'spec = ["data", "model"]\n'
            "                ^^^^^^^\n"
            "  help: the axes are data, tensor\n"
        ),
    ),
    "a dynamic shape, cut": Case(
        SHARD,
        (
            'm.mlir:1:1: error[dynamic-shape]: argument 0 ("p.w"), dimension 0 has no static size to cut into 2 pieces\n'
            'func.func @main(%a: tensor<?x16xf32> loc("p.w")) -> tensor<?x16xf32> {\n'
            "^\n"
            '  note: sharding is [{"data"}, {"model"}] on mesh data=2, model=4\n'
            '  note: rule 1 (r.toml:5): match = \'\\.w$\', spec = ["data", "model"]\n'
            "  help: export the module for concrete shapes, or leave this dimension whole\n"
        ),
        {
            "m.mlir": 'func.func @main(%a: tensor<?x16xf32> loc("p.w")) -> tensor<?x16xf32> {\n  return %a : tensor<?x16xf32>\n}\n'
        },
    ),
    "a native pipeline under the wrong op": Case(
        (
            *SHARD,
            "--pipeline",
            "func.func(sdy-propagation-pipeline)",
        ),
        (
            'error[bad-pipeline]: "sdy-propagation-pipeline" runs on the whole module, not under func.func\n'
            "func.func(sdy-propagation-pipeline)\n"
            "          ^^^^^^^^^^^^^^^^^^^^^^^^\n"
            "  help: write it without the nesting; shardpass nests passes itself\n"
        ),
    ),
    "a native pass under the wrong op": Case(
        (
            *SHARD,
            "--pipeline",
            "func.func(sdy-close-shardings)",
        ),
        (
            "error[bad-pipeline]: MLIR refuses this nesting: Can't add pass 'CloseShardingsPass' restricted to 'builtin.module' on a PassManager intended to run on 'func.func', did you intend to nest?\n"
            "func.func(sdy-close-shardings)\n"
            "^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
            "  help: write the passes without the nesting; shardpass nests them itself\n"
        ),
    ),
    "our pass under the wrong op": Case(
        (
            *SHARD,
            "--pipeline",
            "func.func(sp-annotate)",
        ),
        (
            'error[bad-pipeline]: "sp-annotate" runs on the whole module, not under func.func\n'
            "func.func(sp-annotate)\n"
            "          ^^^^^^^^^^^\n"
            "  help: write it without the nesting; shardpass nests passes itself\n"
        ),
    ),
    "an unknown pass": Case(
        (
            *SHARD,
            "--pipeline",
            "sp-annotate,sp-propogate",
        ),
        (
            'error[unknown-pass]: there is no pass "sp-propogate"\n'
            "sp-annotate,sp-propogate\n"
            "            ^^^^^^^^^^^^\n"
            '  help: did you mean "sp-propagate"?\n'
        ),
    ),
    "an unknown option of a pass": Case(
        (
            *SHARD,
            "--pipeline",
            "sp-annotate{ruels=r.toml}",
        ),
        (
            'error[bad-option]: sp-annotate has no option "ruels"\n'
            "sp-annotate{ruels=r.toml}\n"
            "            ^^^^^\n"
            '  help: did you mean "rules"?\n'
        ),
    ),
    "no output folder": Case(
        (
            "shard",
            "m.mlir",
            "-o",
            "no/out.mlir",
            "--rules",
            "r.toml",
        ),
        (
            "error[unwritable]: cannot write no/out.mlir: the folder no does not exist\n"
            "  help: make it first: mkdir -p no\n"
        ),
    ),
    "a full disk": Case(
        (
            "shard",
            "m.mlir",
            "-o",
            "/dev/full",
            "--rules",
            "r.toml",
        ),
        ("error[unwritable]: cannot write /dev/full: no space left on device\n"),
    ),
    "garbage mhlo.sharding, sharded": Case(
        SHARD,
        (
            "error[internal]: ModuleNotFoundError: No module named 'shardpass.canon.lowering'\n"
            "  help: this is a fault of shardpass; SHARDPASS_TRACEBACK=1 shows where it comes from\n"
        ),
        {"m.mlir": TILED.replace("{devices=[8]<=[8]}", "{devices=[banana")},
    ),
    "garbage mhlo.sharding, run": Case(
        (
            "run",
            "m.mlir",
            "--devices",
            "8",
        ),
        (
            "error[internal]: ModuleNotFoundError: No module named 'shardpass.canon.lowering'\n"
            "  help: this is a fault of shardpass; SHARDPASS_TRACEBACK=1 shows where it comes from\n"
        ),
        {"m.mlir": TILED.replace("{devices=[8]<=[8]}", "{devices=[banana")},
    ),
    "garbage mhlo.sharding, reported": Case(
        (
            "report",
            "m.mlir",
        ),
        (
            "error[internal]: ModuleNotFoundError: No module named 'shardpass.canon.lowering'\n"
            "  help: this is a fault of shardpass; SHARDPASS_TRACEBACK=1 shows where it comes from\n"
        ),
        {"m.mlir": TILED.replace("{devices=[8]<=[8]}", "{devices=[banana")},
    ),
    "mhlo.sharding through Shardy": Case(
        (
            "run",
            "m.mlir",
            "--partitioner",
            "shardy",
        ),
        (
            "error[internal]: ModuleNotFoundError: No module named 'shardpass.canon.lowering'\n"
            "  help: this is a fault of shardpass; SHARDPASS_TRACEBACK=1 shows where it comes from\n"
        ),
        {"m.mlir": TILED},
    ),
    "fewer devices than the sharding has": Case(
        (
            "run",
            "m.mlir",
            "--devices",
            "3",
        ),
        (
            "error[internal]: ModuleNotFoundError: No module named 'shardpass.canon.lowering'\n"
            "  help: this is a fault of shardpass; SHARDPASS_TRACEBACK=1 shows where it comes from\n"
        ),
        {"m.mlir": TILED},
    ),
    "a device twice": Case(
        (
            "report",
            "m.mlir",
        ),
        (
            "m.mlir:1:15: error[mlir]: custom op 'sdy.mesh' sorted device ids must be iota(product(axes)), got: 0, 0\n"
            'sdy.mesh @m = <["x"=2], device_ids=[0, 0]>\n'
            "              ^\n"
            "  help: device_ids lists every device from 0 once\n"
        ),
        {"m.mlir": 'sdy.mesh @m = <["x"=2], device_ids=[0, 0]>\n' + MODULE},
    ),
    "inputs that are no .npz": Case(
        (
            "run",
            "m.mlir",
            "--inputs",
            "x.npz",
        ),
        (
            "error[unreadable]: x.npz is not an .npz file: File is not a zip file\n"
            "  help: write it with numpy.savez\n"
        ),
        {"x.npz": b"nope"},
    ),
    "nothing that says how": Case(
        (
            "shard",
            "m.mlir",
            "-o",
            "out.mlir",
        ),
        (
            "Usage: shardpass shard [OPTIONS] MODULE\n"
            "Try 'shardpass shard --help' for help.\n"
            "\n"
            "Error: nothing says how to shard: give --rules FILE, or --pipeline TEXT\n"
        ),
        code=2,
    ),
    "an unknown command": Case(
        ("shrad",),
        (
            "Usage: shardpass [OPTIONS] COMMAND [ARGS]...\n"
            "Try 'shardpass --help' for help.\n"
            "\n"
            "Error: there is no command 'shrad'; did you mean \"shard\"?\n"
        ),
        code=2,
    ),
    "an unknown option": Case(
        (
            "shard",
            "m.mlir",
            "--ruels",
            "r.toml",
        ),
        (
            "Usage: shardpass shard [OPTIONS] MODULE\n"
            "Try 'shardpass shard --help' for help.\n"
            "\n"
            "Error: No such option '--ruels'. (Did you mean one of: '--help', '--mesh', '--rules'?)\n"
        ),
        code=2,
    ),
    "a pass that opt does not know": Case(
        (
            "opt",
            "m.mlir",
            "--sp-anotate",
        ),
        (
            'error[unknown-pass]: there is no pass "sp-anotate"\n'
            "sp-anotate\n"
            "^^^^^^^^^^\n"
            '  help: did you mean "sp-annotate"?\n'
        ),
    ),
    "an option that opt does not know": Case(
        (
            "opt",
            "m.mlir",
            "--split-inputs",
        ),
        (
            'error[unknown-pass]: there is no pass "split-inputs"\n'
            "split-inputs\n"
            "^^^^^^^^^^^^\n"
            "  help: shardpass opt --list-passes shows them all\n"
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_message_and_nothing_written(name: str, shardpass: Run, folder: Path) -> None:
    case = CASES[name]
    for file, content in case.files.items():
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = shardpass(*case.arguments)
    assert done.stderr == case.told
    assert (done.returncode, done.stdout) == (case.code, "")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


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
    assert done.returncode == 1
    assert done.stderr == (
        '{"severity": "error", "slug": "bad-mesh", '
        '"message": "axis \\"data\\" stands 2 times in the mesh data=2, data=4"}\n'
    )
