"""Run a command line of shardpass with a pass of it switched off, and note what it was.

    python -m shardpass.lit.switch FOLDER TEST WORD...

stands for ``shardpass WORD...`` while :mod:`shardpass.lit.prove` runs a suite. Its folder says
which pass to switch off in which test; a line in the test's record there says what the command was,
which passes are on it, whether one of them was taken off, and what the exit status was.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from shardpass.lit.passes_off import passes_of, without_pass

_PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class Call:
    """One run of the command line in a test.

    ``words`` is the command as the test has it. ``switched_off`` says whether it ran with a pass
    less; ``status`` is its exit status, negative where a signal ended it.
    """

    words: list[str]
    passes: list[str]
    switched_off: bool
    status: int


def write_plan(folder: Path, options: Mapping[str, bool], off: Mapping[Path, str]) -> None:
    """Say what to switch off: a pass for each test; and forget what ran before."""
    plan = {"options": dict(options), "off": {str(test): name for test, name in off.items()}}
    (folder / _PLAN).write_text(json.dumps(plan), encoding="utf-8")
    for record in folder.glob("*.jsonl"):
        record.unlink()


def calls_in(folder: Path, test: Path) -> list[Call]:
    """The runs of the command line that a test has made, in the order in which they ended."""
    record = _record(folder, test)
    lines = record.read_text("utf-8").splitlines() if record.exists() else []
    return [Call(**json.loads(line)) for line in lines]


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    folder, test, *words = arguments
    plan = json.loads(Path(folder, _PLAN).read_text("utf-8"))
    kept, passes = words, []
    if words[:1] == ["opt"]:
        passes = passes_of(words, plan["options"])
        off = plan["off"].get(test)
        kept = without_pass(words, off, plan["options"]) if off else words
    status = subprocess.call([sys.executable, "-m", "shardpass", *kept])
    call = Call(words, passes, kept != words, status)
    with _record(Path(folder), Path(test)).open("a", encoding="utf-8") as record:
        record.write(json.dumps(asdict(call)) + "\n")
    return status if status >= 0 else 128 - status


def _record(folder: Path, test: Path) -> Path:
    return folder / (hashlib.sha256(str(test).encode()).hexdigest() + ".jsonl")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
