"""What this project wants of its lit tests, beside what ``shardpass lit-lint`` finds.

    python tools/lit_lint.py                 # all of lit_tests
    python tools/lit_lint.py --prove         # and run each pass's tests without the pass

Every pass has a test named after it, which runs it. No test is skipped, expected to
fail, or left for later. RUN lines name no program but this project's.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lit_passes import PROJECT, PassSource, passes_in

sys.path.insert(0, str(PROJECT))

from shardpass.cli.lit_lint import opt_options
from shardpass.diagnostics import Diagnostic, ShardingError, render
from shardpass.lit.discovery import find_tests
from shardpass.lit.lint import UNCHECKED, UNREAD, fault, lint_files
from shardpass.lit.passes_off import named_after
from shardpass.lit.prove import prove
from shardpass.lit.script import Run, run_lines

_SKIPPING = re.compile(r"(?://|#)\s*(XFAIL|UNSUPPORTED|REQUIRES|TODO|FIXME)\s*:")
_PROGRAMS = ("filecheck", "FileCheck", "python", "python3")


def own_faults(path: Path, text: str, names: Sequence[str], folder: Path) -> Iterator[Diagnostic]:
    """What this project alone finds wrong in a test; tests of passes lie in ``folder``."""
    runs = run_lines(text)
    for number, line in enumerate(text.splitlines(), 1):
        if found := _SKIPPING.search(line):
            message = f"{found[1]}: a test is neither skipped, nor expected to fail, nor left over"
            yield fault(path, number, UNREAD, message, text, found[1])
    for run in runs:
        for segment in run.segments:
            words = [w for w in segment.text.split() if w not in ("not", "env") and "=" not in w]
            if words and words[0] in _PROGRAMS:
                message = f"{words[0]}: write %shardpass or %filecheck"
                yield fault(path, run.line, UNCHECKED, message, text)
    if folder in path.parents:
        for line, message in _name_faults(path, runs, names):
            yield fault(path, line, UNCHECKED, message, text)


def _name_faults(path: Path, runs: list[Run], names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """A file that is not named after a pass, or never runs it."""
    name = named_after(path, names)
    if name is None:
        near = difflib.get_close_matches("sp-" + path.stem, names, 1)
        hint = f"; did you mean {near[0].removeprefix('sp-')}{path.suffix}?" if near else ""
        yield 1, f"no pass is named sp-{path.stem}{hint}"
    elif not any(re.search(rf"\b{re.escape(name)}(?![\w-])", run.command) for run in runs):
        yield runs[0].line if runs else 1, f"no RUN line runs {name}"


def pass_faults(passes: Sequence[PassSource], folder: Path) -> Iterator[Diagnostic]:
    """Passes whose five names differ, or that no lit test is named after."""
    for found in passes:
        bare = found.name.removeprefix("sp-")
        module = bare.replace("-", "_")
        class_name = "".join(word.capitalize() for word in bare.split("-"))
        messages = []
        if found.path.stem != module:
            messages.append(f"{found.name} belongs in {module}.py")
        if found.class_name != class_name:
            messages.append(f"{found.name} is the name of a class {class_name}")
        if not (folder / f"{bare}.mlir").is_file():
            messages.append(f"{found.name} has no lit test passes/{bare}.mlir")
        yield from (fault(found.path, found.line, UNCHECKED, message) for message in messages)


def main(arguments: Sequence[str] | None = None) -> int:
    """Lint, and with ``--prove`` run; the exit status is 1 where anything was found."""
    parser = argparse.ArgumentParser(
        description="Find lit tests that check less than they seem to."
    )
    parser.add_argument("paths", nargs="*", type=Path, help="tests or folders (all of lit_tests)")
    parser.add_argument(
        "--prove", action="store_true", help="run each test without its pass and want it to fail"
    )
    options = parser.parse_args(arguments)
    suite = PROJECT / "lit_tests"
    folder = suite / "passes"
    passes = passes_in(PROJECT / "shardpass" / "passes")
    names = [found.name for found in passes]

    faults = [] if options.paths else list(pass_faults(passes, folder))
    proven = ""
    try:
        tests = find_tests(options.paths or [suite])
        faults += lint_files([test.path for test in tests], are_all=not options.paths)
        for test in tests:
            faults += own_faults(test.path, test.path.read_text("utf-8"), names, folder)
        if options.prove and not faults:
            proof = prove([test for test in tests if folder in test.path.parents], opt_options())
            faults += proof.faults
            proven = f", {proof.proven} fail without their pass"
    except ShardingError as error:
        print(render(error.diagnostic))
        return 1
    for each in faults:
        print(render(each))
    print(f"lit lint: {len(tests)} tests{proven}, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
