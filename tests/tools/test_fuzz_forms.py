"""Damaged files of every form, a few of ``tools/fuzz_forms.py``."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def test_every_file_ends_in_a_message() -> None:
    """In a process that has not started MLIR, since it forks."""
    run = subprocess.run(
        [sys.executable, str(TOOLS / "fuzz_forms.py"), "--count", "4", "--seed", "11"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line.split(": ") for line in run.stdout.splitlines()]
    assert {line[0] for line in lines} >= {"text", "bytecode", "portable", "exported", "hlo"}
    assert sum(int(line[-1].split()[-1]) for line in lines if line[0] != "") == 24


@pytest.mark.parametrize(
    ("code", "told", "fault"),
    [
        (0, "", None),
        (1, "error[unreadable]: it is cut short", None),
        (3, "error[process-aborted]: the child process was ended by SIGABRT", None),
        (None, "", "it does not end"),
        (1, "Traceback (most recent call last)\nerror[mlir]: a", "a traceback"),
        (3, "error[internal]: KeyError", "an internal error"),
        (-11, "", "exit code -11"),
        (70, "error[mlir]: a", "exit code 70"),
        (1, "nothing", "an end without an error"),
        (3, "error[mlir]: a", "a death without a name"),
    ],
)
def test_what_counts_as_a_fault(
    code: int | None, told: str, fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    from fuzz_forms import fault_in

    assert fault_in(code, told) == fault


def test_one_thing_is_broken_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    from fuzz_forms import damaged, every_flip

    sample = bytes(range(200))
    for seed in range(50):
        broken = damaged(sample, random.Random(seed))
        assert broken == damaged(sample, random.Random(seed))
        start = next(
            (i for i, (a, b) in enumerate(zip(sample, broken, strict=False)) if a != b), len(broken)
        )
        assert sample.startswith(broken[:start])
        assert len(sample) - 16 <= len(broken) <= len(sample) + 16 or sample.startswith(broken)
    flips = list(every_flip(sample))
    assert len(flips) == 200
    assert all(sum(a != b for a, b in zip(sample, flip, strict=True)) == 1 for flip in flips)
