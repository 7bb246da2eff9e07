"""Native aborts, internal errors and endless passes: what they cost, and what is said of them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import PROJECT, Run

#: The pass aborts on a dimension of 6 in 4 pieces, in both supported jaxlibs.
DEADLY = """\
sdy.mesh @mesh = <["x"=4]>
func.func @main(%a: tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
    -> (tensor<6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
  %0 = stablehlo.abs %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>}
    : tensor<6xf32>
  return %0 : tensor<6xf32>
}
"""
PASS = "sdy-convert-global-to-local"
GOOD = DEADLY.replace("tensor<6xf32>", "tensor<8xf32>")
BORDER = "// -----\n"

PLUGIN = """\
import time
from typing import ClassVar
from shardpass import Pass

class Raise(Pass):
    "Raise."
    name: ClassVar[str] = "acme-raise"
    def run(self, root, sink):
        raise RuntimeError("no idea")

class Sleep(Pass):
    "Never end."
    name: ClassVar[str] = "acme-sleep"
    def run(self, root, sink):
        print("here", flush=True)
        while True:
            time.sleep(0.1)
"""


@pytest.fixture
def plugin(folder: Path) -> dict[str, str]:
    """The environment in which passes of another distribution are there."""
    (folder / "acme.py").write_text(PLUGIN)
    facts = folder / "acme-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(
        "[shardpass.passes]\nacme-raise = acme:Raise\nacme-sleep = acme:Sleep\n"
    )
    return {"PYTHONPATH": f"{PROJECT}{os.pathsep}{folder}"}


def test_an_abort_names_the_pass_and_can_be_repeated(
    shardpass: Run, folder: Path, temporary: Path
) -> None:
    (folder / "d.mlir").write_text(DEADLY)
    done = shardpass("opt", "d.mlir", "-cse", f"-{PASS}", "-canonicalize", "-o", "out.mlir")
    assert (done.returncode, done.stdout) == (3, "")
    assert not (folder / "out.mlir").exists()
    said = done.stderr.splitlines()
    assert said[0] == (
        f"d.mlir: error[process-aborted]: in {PASS}: the child process was ended by SIGABRT"
    )
    assert said[1].startswith("  note: Check failed: ")
    assert "non-divisible sharding" in said[1]
    (kept,) = temporary.iterdir()
    assert said[2:4] == [
        f"  note: what it died of is in {kept}",
        f"  note: to repeat it: shardpass opt {kept} --run-reproducer",
    ]
    head, text = kept.read_text().split("\n", 1)
    assert head.endswith(f"shardpass opt {kept} --run-reproducer")
    assert text.startswith(DEADLY)
    again = shardpass(*shlex.split(said[3].split("to repeat it: ")[1])[1:])
    assert again.returncode == 3
    assert f"error[process-aborted]: in {PASS}: " in again.stderr
    assert [*temporary.iterdir()] == [kept], "the reproducer is there already"


def test_an_abort_costs_one_part_of_a_file(shardpass: Run, folder: Path, temporary: Path) -> None:
    (folder / "d.mlir").write_text(BORDER.join([GOOD, DEADLY, GOOD, f"\n{DEADLY}", "func.func @x"]))
    done = shardpass(
        "opt", "d.mlir", "-split-input-file", f"-{PASS}", f"-mlir-print-ir-before={PASS}"
    )
    assert done.returncode == 3
    places = re.findall(r"^d\.mlir:(\d+).*error\[([\w-]+)\]", done.stderr, re.MULTILINE)
    # As in MLIR, the parser's fault is where the text ends.
    assert places[:2] == [("9", "process-aborted"), ("26", "process-aborted")]
    assert [slug for _, slug in places[2:]] == ["mlir"]
    assert len([*temporary.iterdir()]) == 2
    # Each dump stands there once, although parts ran again.
    assert done.stderr.count("IR Dump Before") == 4
    # What is printed is for people: the parts that are well.
    assert done.stdout.count("func.func") == 2


def test_what_comes_of_the_parse_is_not_laid_at_a_pass(folder: Path, temporary: Path) -> None:
    """A process that dies in front of all passes, here by memory that it may not have."""
    (folder / "d.mlir").write_text(GOOD)
    code = (
        "import os, signal, shardpass.mlir.reading as m\n"
        "from shardpass.cli.main import main\n"
        "m.make_context = lambda: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "main(['opt', 'd.mlir', '-cse'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.startswith(
        "d.mlir: error[process-aborted]: in front of all passes: the child process was ended by "
        "SIGSEGV\n"
    )


def test_an_internal_error_is_kept_and_costs_one_part(
    folder: Path, temporary: Path, plugin: dict[str, str]
) -> None:
    (folder / "d.mlir").write_text(BORDER.join([GOOD, GOOD]))
    done = run_with(plugin, folder, "opt", "d.mlir", "-split-input-file", "-acme-raise")
    assert done.returncode == 3
    assert done.stderr.count("error[internal]: RuntimeError: no idea\n") == 2
    assert done.stderr.count("  note: raised in acme-raise\n") == 2
    (kept,) = temporary.iterdir()
    assert f"remark[reproducer]: what failed is in {kept}\n" in done.stderr
    assert f"to repeat it: shardpass opt {kept} --run-reproducer\n" in done.stderr


def test_a_reproducer_names_its_passes_alone(shardpass: Run) -> None:
    done = shardpass("opt", "m.mlir", "--cse", "--run-reproducer")
    assert done.returncode == 2
    assert "--run-reproducer takes the passes from the file" in done.stderr
    done = shardpass("opt", "m.mlir", "--run-reproducer")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "error[unreadable]: m.mlir holds no reproducer",
    )


def test_an_endless_pass_is_interrupted(folder: Path, plugin: dict[str, str]) -> None:
    """And what was printed until then is seen: it says which pass does not end."""
    words = ["opt", "m.mlir", "-cse", "-acme-sleep", "-mlir-print-ir-before-all", "-o", "o.mlir"]
    with subprocess.Popen(
        [sys.executable, "-m", "shardpass", *words],
        cwd=folder,
        env={**os.environ, **plugin},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert time.monotonic() - started < 20
    assert re.findall(r"IR Dump Before \S+ (\S+)", told)[-1] == "acme-sleep"
    assert not (folder / "o.mlir").exists()


def run_with(
    environment: dict[str, str], folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "shardpass", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
