"""The demo's claims can fail, its memory is measured, and a small one runs from end to end."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from process_memory import PeakMemory
from project_environment import Environment
from run_demo import Demo, DemoError, faults_of, summary_of

from tests.examples.settings import SMALL_GPT2


def report(share: float = 0.25, kinds: tuple[str, ...] = ("all-reduce",), devices: int = 8) -> dict:
    return {
        "devices": devices,
        "totals": {"arguments": {"bytes": 1000}},
        "compiled": {
            "collectives": [{"kind": kind, "count": 3, "bytes": 2**20} for kind in kinds],
            "memory": {"argument": round(1000 * share)},
        },
    }


@pytest.mark.parametrize(
    ("figures", "faults"),
    [
        (report(), []),
        (report(share=0.35), []),
        (report(share=0.36), ["a device holds 0.360 of the arguments, more than 0.35"]),
        (
            report(kinds=("all-gather",)),
            ["no all-reduce in the compiled program: it is not tensor parallel"],
        ),
        (
            report(kinds=("all-reduce", "all-gather")),
            ["all-gather of 1.00 of the all-reduces' bytes"],
        ),
        (report(devices=4), ["the module is for 4 devices, not 8"]),
    ],
)
def test_each_claim_can_be_refuted(figures: dict, faults: list[str]):
    assert list(faults_of(figures)) == faults


def test_the_summary_has_the_figures():
    assert summary_of(report(kinds=("all-reduce", "all-gather"))) == (
        "A device holds 0.250 of the arguments; a run makes "
        "3 all-reduce (1.0 MiB), 3 all-gather (1.0 MiB)."
    )


HOLD = "held = bytearray(150 << 20); import time; time.sleep({seconds})"
PARENT = f"""\
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {HOLD.format(seconds=3)!r}])
{HOLD.format(seconds=2)}
child.wait()
"""


def test_memory_of_a_command_and_its_children_is_added_up():
    peak = PeakMemory()
    process = subprocess.Popen([sys.executable, "-c", PARENT])
    with peak.of(process):
        assert process.wait() == 0
    assert 300 * 2**20 < peak.bytes < 500 * 2**20


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment whose programs are those of the Python that runs the tests."""
    binaries = tmp_path / "environment" / "bin"
    binaries.mkdir(parents=True)
    python = shlex.quote(sys.executable)
    for name, command in (("python", python), ("shardpass", f"{python} -m shardpass")):
        script = binaries / name
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)
    return Environment(binaries.parent, "3.99.1", "9.9")


def test_a_small_demo_runs_in_both_notations(
    environment: Environment, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """The vocabulary is as large, beside the positions, that a third of the arguments is left."""
    demo = Demo(environment, tmp_path / "out", [*SMALL_GPT2, "--vocabulary", "8192"])
    sharded = demo.run()
    assert sharded == tmp_path / "out" / "gpt2.sdy.mlir"
    assert "sdy.sharding" in sharded.read_text()
    assert "mhlo.sharding" in (tmp_path / "out" / "gpt2.mhlo.mlir").read_text()
    printed = capfd.readouterr().out
    assert printed.count("check passed: 86 of 86 results on 8 devices") == 2
    assert printed.count("A device holds 0.3") == 2


def test_a_command_that_fails_ends_the_demo(environment: Environment, tmp_path: Path):
    demo = Demo(environment, tmp_path / "out", ["--layers", "one"])
    with pytest.raises(DemoError, match=r"export_step.py ended with exit status 2"):
        demo.run()
