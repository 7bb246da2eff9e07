"""Each bench runs, and prints its ratios beside their bounds. No time is asserted here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
BENCHES = PROJECT / "tools" / "bench"

_FIGURE = re.compile(r"^(?P<what>\S.*?)\s{2,}(?P<figure>\d+\.\d{3})(?: MiB)?", re.MULTILINE)


def run_bench(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, str(BENCHES / name), *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def figures(name: str, *options: str) -> dict[str, float]:
    """What a bench prints: the text of each line -> its figure."""
    run = run_bench(name, *options)
    assert run.returncode == 0, run.stderr
    assert re.search(r"^# jax \d+\.\d+.*, \d+ cores$", run.stdout, re.MULTILINE)
    return {found["what"]: float(found["figure"]) for found in _FIGURE.finditer(run.stdout)}


def test_passes() -> None:
    found = figures("passes.py", "--layers", "2", "--few-layers", "1", "--repeat", "1")
    names = [re.sub(r"\d+ ops", "N ops", name) for name in found]
    assert names[:4] == [
        "gpt2: annotate + propagate + export-mhlo over native",
        "gpt2: shard IN -o OUT over parse, native, print",
        "llama, 2 layers: annotate + propagate + export-mhlo over native",
        "llama, 2 layers: shard IN -o OUT over parse, native, print",
    ]
    grown = "time per op, llama, 2 layers (N ops) over llama, 1 layers"
    assert names[4:6] == [f"{grown}: ours", f"{grown}: native"]
    assert all(figure > 0 for figure in list(found.values())[:6])


def test_passes_on_a_module_of_ones_own(tmp_path: Path) -> None:
    module, rules = tmp_path / "step.mlir", tmp_path / "rules.toml"
    module.write_text(
        'func.func @main(%w: tensor<8x8xf32> loc("w")) -> tensor<8x8xf32> {\n'
        "  %0 = stablehlo.add %w, %w : tensor<8x8xf32>\n  return %0 : tensor<8x8xf32>\n}\n"
    )
    rules.write_text('[mesh]\nx = 2\n\n[[rule]]\nmatch = "w"\nspec = ["x", []]\n')
    found = figures("passes.py", "--module", str(module), "--rules", str(rules), "--repeat", "1")
    assert list(found) == [
        "step.mlir: annotate + propagate + export-mhlo over native",
        "step.mlir: shard IN -o OUT over parse, native, print",
    ]


def test_convert() -> None:
    found = figures("convert.py", "--layers", "2", "--few-layers", "1", "--repeat", "1")
    assert list(found) == [
        "llama, 2 layers: export over native",
        "llama, 2 layers: import over native",
        "time per op, llama, 2 layers over llama, 1 layers: export",
        "time per op, llama, 2 layers over llama, 1 layers: import",
        "the mesh of 500 assignments over 4,096 devices over native",
        "reading 500 assignments over 4,096 devices over native",
    ]


def test_mhlo_text() -> None:
    found = figures("mhlo_text.py", "--repeat", "1")
    assert list(found) == [
        "mhlo text on 1,048,576 devices over 8 devices",
        "growth of the peak of resident memory",
    ]


def test_import_time() -> None:
    found = figures("import_time.py", "--repeat", "1")
    assert list(found) == ['"import shardpass; shardpass.NamedSharding" over "import jax"']


def test_opt_start() -> None:
    found = figures("opt_start.py", "--repeat", "1")
    assert list(found) == [
        f'"shardpass opt{passes}" over "import jax"'
        for passes in (" --sp-verify --sp-propagate", " --sdy-basic-propagate", "")
    ]


def test_a_missed_bound_is_an_exit_code_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHES))
    from side_by_side import Ratios, parser_of

    ratios = Ratios()
    ratios.add("what held", 1.05, 1.10)
    ratios.add("context", 99.0)
    asked, plain = (parser_of("").parse_args(line) for line in (["--assert"], []))
    assert ratios.missed == []
    assert ratios.exit_code(asked) == 0
    ratios.add("what missed", 1.11, 1.10)
    assert ratios.missed == ["what missed"]
    assert ratios.exit_code(asked) == 1
    assert ratios.exit_code(plain) == 0


@pytest.mark.parametrize(
    "name",
    ["passes.py", "convert.py", "mhlo_text.py", "import_time.py", "opt_start.py", "llama.py"],
)
def test_help(name: str) -> None:
    run = run_bench(name, "--help")
    assert run.returncode == 0
    assert "usage:" in run.stdout
