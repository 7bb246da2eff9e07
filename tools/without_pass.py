"""Run a command line of shardpass with one pass taken off it.

    without_pass.py LOGS lit_tests/passes/annotate.mlir COMMAND WORD...

The pass is the one that the test file is named after. ``--sp-annotate``,
``--sp-annotate=...``, and the pass in a ``--pass-pipeline`` or ``--pipeline``
are left out; everything else is run as it stands. Where something was left out,
what the command wrote on standard error, and its exit status, is kept in the
folder LOGS as well, so that a test which fails for another reason is not taken
for a proof.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lit_passes import PROJECT, pass_of, passes_in

_PIPELINE_OPTIONS = ("--pass-pipeline", "--pipeline")


def split_pipeline(text: str) -> list[str]:
    """The parts of a pipeline between commas that stand outside brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "{([":
            depth += 1
        elif character in "})]":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def pipeline_without(text: str, name: str) -> str:
    """The pipeline less every use of the pass, also inside ``anchor(...)``."""
    kept = []
    for part in split_pipeline(text):
        bare = part.strip()
        nested = re.fullmatch(r"([\w.]+)\((.*)\)", bare, re.DOTALL)
        if nested:
            inner = pipeline_without(nested[2], name)
            if inner.strip():
                kept.append(f"{nested[1]}({inner})")
        elif bare.split("{")[0].strip() != name:
            kept.append(part)
    return ",".join(kept)


def command_without(words: Sequence[str], name: str) -> list[str]:
    """The command's words less every use of the pass.

    A pipeline that is left empty goes with its option.
    """
    kept: list[str] = []
    waiting = False  # the last word kept is an option whose value is a pipeline
    for word in words:
        option, equals, value = word.partition("=")
        if waiting:
            waiting = False
            rest = pipeline_without(word, name)
            kept = [*kept, rest] if rest.strip() else kept[:-1]
        elif option == f"--{name}":
            continue
        elif option in _PIPELINE_OPTIONS and equals:
            rest = pipeline_without(value, name)
            if rest.strip():
                kept.append(f"{option}={rest}")
        else:
            waiting = word in _PIPELINE_OPTIONS
            kept.append(word)
    return kept


def log_of(logs: Path, test: Path) -> Path:
    """The file in ``logs`` for one test."""
    return logs / (re.sub(r"[^\w.-]", "_", str(test)) + ".log")


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    logs, test, *words = arguments
    name = pass_of(Path(test), [p.name for p in passes_in(PROJECT / "shardpass" / "passes")])
    rest = command_without(words, name) if name else words
    run = subprocess.run(rest, stderr=subprocess.PIPE, check=False)
    sys.stderr.buffer.write(run.stderr)
    if rest != words:
        with log_of(Path(logs), Path(test)).open("ab") as log:
            log.write(run.stderr + f"\nexit status {run.returncode}\n".encode())
    return run.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
