"""Why a lit test of Shardy's fails: read from lit's output of it, and from running its line again.

A failing test ends at the first RUN line whose command fails. What that command wrote says most;
where FileCheck found other text than it wanted, the line is run again with other programs behind
its words, to tell three cases apart:

* with LLVM's own FileCheck it passes: the ``filecheck`` package reads the test otherwise;
* with nothing but jaxlib's pass manager behind ``sdy_opt`` it passes: the fault is ours;
* neither passes: this jaxlib does something else than the Shardy that the test was written for.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

NOT_IN_JAXLIB = "not in this jaxlib"
DIES = "this jaxlib dies of it"
OTHER = "other output or wording of this jaxlib"
FILECHECK = "read otherwise by filecheck"
OURS = "ours"

_RUN = re.compile(r"^# RUN: at line (?P<line>\d+)\n(?P<command>.*)$", re.MULTILINE)
_EXECUTED = re.compile(r"^# executed command: (?P<command>.*)$", re.MULTILINE)
_STATUS = re.compile(r"^# error: command failed with exit status: (?P<status>-?\d+)", re.MULTILINE)
_SHOWN = re.compile(r"^# \| ?(?P<text>.*)$", re.MULTILINE)
_ERROR = re.compile(r"\berror\[(?P<slug>[\w-]+)\]: (?P<message>.*)")
_UNEXPECTED = re.compile(r"error\[unmet-expectation\]: (?P<message>.*)")
#: Slugs that speak of passes and options; where a test names them, jaxlib does not have them.
_MISSING = ("unknown-pass", "bad-option", "bad-pipeline")
_SECONDS = 120

#: Runs a command line and says whether it succeeds.
Trial = Callable[[str], bool]


class Cause(NamedTuple):
    """Why a test fails: one of the kinds above, and what shows it, on one line."""

    kind: str
    shown: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.shown}" if self.shown else self.kind


@dataclass(frozen=True)
class Failure:
    """The command that failed: its program, exit status and output, and the RUN line it is in."""

    program: str
    status: int
    output: str
    run_line: str


def failure_of(output: str) -> Failure | None:
    """The first command that failed, in lit's output of a test."""
    runs = list(_RUN.finditer(output))
    commands = list(_EXECUTED.finditer(output))
    for number, command in enumerate(commands):
        end = commands[number + 1].start() if number + 1 < len(commands) else len(output)
        status = _STATUS.search(output, command.end(), end)
        if status:
            shown = "\n".join(
                match["text"] for match in _SHOWN.finditer(output, command.end(), status.start())
            )
            line = next(
                (run["command"] for run in reversed(runs) if run.start() < command.start()), ""
            )
            program = Path(shlex.split(command["command"])[0]).name
            return Failure(program, int(status["status"]), shown, line)
    return None


def cause_of(
    output: str,
    *,
    say: Callable[[str], str],
    with_llvm: Trial | None = None,
    with_jaxlib: Trial | None = None,
) -> Cause:
    """Why a test failed.

    Args:
      output: what lit has to say of it.
      say: all that a command line writes when it is run again, for those whose words went nowhere.
      with_llvm: runs a line with LLVM's FileCheck, if there is one.
      with_jaxlib: runs a line with jaxlib's bare pass manager in place of ``shardpass opt``.
    """
    failed = failure_of(output)
    if failed is None:
        return Cause(OURS, f"lit itself failed: {_first(output)}")
    words = failed.output
    if failed.program in ("sdy_opt", "run_sdy_interpreter_test.sh") and "error[" not in words:
        words = say(failed.run_line.split("| FileCheck")[0])
    if "Traceback (most recent call last)" in words or "error[internal]" in words:
        return Cause(OURS, words.strip().splitlines()[-1])
    said = _ERROR.search(words)
    if said and said["slug"] in _MISSING:
        return Cause(NOT_IN_JAXLIB, said["message"])
    if said and said["slug"] == "process-aborted":
        return Cause(DIES, said["message"])
    if failed.program == "FileCheck" and with_llvm and with_llvm(failed.run_line):
        return Cause(FILECHECK, _first(words))
    if with_jaxlib and with_jaxlib(failed.run_line):
        return Cause(OURS, _first(words))
    unexpected = _UNEXPECTED.search(words)
    if unexpected:
        return Cause(OTHER, unexpected["message"])
    return Cause(OTHER, said["message"] if said else _first(words))


def _first(text: str) -> str:
    """The first line with an error in it, or the first with anything."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line]
    return re.sub(r"^\S*/", "", (wrong or lines or ["it says nothing"])[0])


def llvm_filecheck(folders: Sequence[Path]) -> Path | None:
    """LLVM's own FileCheck, if it is installed: in one of the folders, or where Debian has it."""
    places = [folder / "FileCheck" for folder in folders]
    places += sorted(Path("/usr/lib").glob("llvm-*/bin/FileCheck"), reverse=True)
    return next((place for place in places if place.is_file()), None)


def trial(programs: Path, environment: Mapping[str, str], folder: Path) -> Trial:
    """Runs command lines in ``folder`` with the programs of another folder first on PATH."""

    def run(line: str) -> bool:
        done = _run(line, programs, environment, folder)
        return done is not None and done.returncode == 0

    return run


def speech(programs: Path, environment: Mapping[str, str], folder: Path) -> Callable[[str], str]:
    """What command lines write, run in the same way."""

    def run(line: str) -> str:
        done = _run(line, programs, environment, folder)
        return "" if done is None else done.stdout + done.stderr

    return run


def _run(
    line: str, programs: Path, environment: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=folder,
            env={**environment, "PATH": f"{programs}:{environment['PATH']}"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
