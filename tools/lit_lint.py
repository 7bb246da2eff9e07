"""Find lit tests that check less than they seem to.

    python tools/lit_lint.py                 # all of lit_tests
    python tools/lit_lint.py --prove         # and run each pass's tests without the pass

FileCheck and lit pass over what they do not know in silence: a ``CHEKC-NEXT``,
a ``CHECK-NEXT`` without its colon, a prefix that no RUN line names. This finds
them. It also wants every pass to have a test named after it, every RUN line to
check something, and no test to be skipped or expected to fail.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lit_passes import PROJECT, PassSource, pass_of, passes_in
from lit_prove import prove

SUFFIXES = ("NEXT", "SAME", "NOT", "DAG", "LABEL", "EMPTY", "COUNT")

_COMMENT = re.compile(r"(?://|#(?=\s)|^#)\s*(?P<text>.*)$")
_DIRECTIVE = re.compile(
    r"(?P<word>[A-Za-z][A-Za-z_-]*?(?:-COUNT-\d+)?)(?P<literal>\{[A-Z]+\})?(?P<colon>\s*:)?(?=[^\w-]|$)"
)
_RUN = re.compile(r"(?:^|[^\w-])RUN:\s?(?P<command>.*)$")
_PREFIX_OPTION = re.compile(r"--?check-prefix(?:es)?[= ]\s*(?P<names>[\w,-]+)")
_EXPECTED = re.compile(r"(?P<word>\bexp\w*-(?:err|warn|rem|note)\w*)(?P<rest>.*)$")
_EXPECTED_FORM = re.compile(r"(-re)?(\s*@([+-]\d+|above|below|unknown))?\s*\{\{.*\}\}\s*$")
_SKIPPING = ("XFAIL", "UNSUPPORTED", "REQUIRES", "TODO", "FIXME")
_PLAIN_COMMANDS = ("shardpass", "filecheck", "FileCheck", "python", "python3")


class Fault(NamedTuple):
    """Something wrong in a test, as ``path:line: message``."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        path = self.path
        if path.is_relative_to(Path.cwd()):
            path = path.relative_to(Path.cwd())
        return f"{path}:{self.line}: {self.message}"


class Run(NamedTuple):
    """A RUN line with its continuations, and the number of its first line."""

    line: int
    command: str

    @property
    def segments(self) -> list[str]:
        """The commands between ``|``, ``&&`` and ``;``."""
        return [part.strip() for part in re.split(r"\|(?!\|)|&&|;", self.command)]


def run_lines(text: str) -> list[Run]:
    """The RUN lines of a test, continued ones (a backslash at the end) in one."""
    runs: list[Run] = []
    open_line = False
    for number, line in enumerate(text.splitlines(), 1):
        match = _RUN.search(line)
        if not match:
            continue
        command = match["command"].strip()
        if open_line:
            command = f"{runs[-1].command} {command}"
            number = runs.pop().line
        open_line = command.endswith("\\")
        runs.append(Run(number, command.removesuffix("\\").strip()))
    return runs


def prefixes_of(runs: Sequence[Run]) -> dict[str, int]:
    """Each FileCheck prefix that the RUN lines name, and the line of the first that does."""
    prefixes: dict[str, int] = {}
    for run in runs:
        for segment in run.segments:
            if "%filecheck" not in segment:
                continue
            named = [
                name
                for match in _PREFIX_OPTION.finditer(segment)
                for name in match["names"].split(",")
            ]
            for name in named or ["CHECK"]:
                prefixes.setdefault(name, run.line)
    return prefixes


def is_directive(word: str, prefixes: Sequence[str]) -> bool:
    """Whether FileCheck reads ``word:`` as a directive of one of the prefixes."""
    for prefix in prefixes:
        rest = word.removeprefix(prefix)
        if rest != word and (
            not rest
            or re.fullmatch(r"-COUNT-[1-9]\d*", rest)
            or (rest[1:] in SUFFIXES and rest[0] == "-" and rest != "-COUNT")
        ):
            return True
    return False


def directive_fault(word: str, colon: str | None, prefixes: Sequence[str]) -> str | None:
    """What is wrong with the first word of a comment, or None if nothing is.

    Args:
      word: the word, without a ``{LITERAL}`` after it.
      colon: what follows, if it is a colon, with the spaces before it.
      prefixes: those that the RUN lines name.
    """
    known = [*prefixes, "RUN"]
    forms = [
        *known,
        *(f"{prefix}-{suffix}" for prefix in prefixes for suffix in SUFFIXES),
    ]
    if word in _SKIPPING and colon:
        return f"{word}: a test is neither skipped, nor expected to fail, nor left for later"
    if word == "RUN" or is_directive(word, prefixes):
        if colon == ":":
            return None
        return f"{word} without a colon right after it is not read"
    base, _, suffix = word.partition("-")
    if base in prefixes:
        wanted = ", ".join(SUFFIXES)
        return f"{word}: no such directive; after {base}- comes one of {wanted} (COUNT-<number>)"
    if suffix in SUFFIXES and base.isupper():
        return f"{word}: no RUN line has --check-prefix={base}"
    shouted = word.isupper() and (colon or "-" in word or "_" in word or "CHECK" in word)
    if colon or shouted:
        near = difflib.get_close_matches(word.upper().replace("_", "-"), forms, 1, cutoff=0.8)
        if near:
            return f"{word}: not read; did you mean {near[0]}:?"
    if word.isupper() and len(word) > 2 and colon == ":" and word not in ("NOTE", "COM"):
        return f"{word}: no RUN line has --check-prefix={word}"
    return None


def directive_faults(path: Path, text: str, prefixes: dict[str, int]) -> Iterator[Fault]:
    """Misspelt, unread and missing FileCheck directives."""
    counts = dict.fromkeys(prefixes, 0)
    positive = dict.fromkeys(prefixes, 0)
    hidden = re.compile(rf"(?:RUN|COM).*(?:{'|'.join(map(re.escape, prefixes)) or '(?!)'})")
    for number, line in enumerate(text.splitlines(), 1):
        comment = _COMMENT.search(line)
        match = comment and _DIRECTIVE.match(comment["text"])
        if not match:
            continue
        word = match["word"]
        fault = directive_fault(word, match["colon"], list(prefixes))
        if fault:
            yield Fault(path, number, fault)
        elif is_directive(word, list(prefixes)):
            if hidden.search(line):
                yield Fault(
                    path, number, "filecheck skips a line with RUN or COM before its prefix"
                )
            if match["literal"] not in (None, "{LITERAL}"):
                yield Fault(path, number, f"{word}{match['literal']}: only {{LITERAL}} is known")
            prefix = max((p for p in prefixes if word.startswith(p)), key=len)
            counts[prefix] += 1
            positive[prefix] += not word.endswith("-NOT")
    for prefix, line in prefixes.items():
        if not counts[prefix]:
            yield Fault(path, line, f"no {prefix}: line in the file")
        elif not positive[prefix]:
            yield Fault(path, line, f"nothing but {prefix}-NOT: an empty output passes")


def expectation_faults(path: Path, text: str, runs: Sequence[Run]) -> Iterator[Fault]:
    """``expected-error`` comments that are misspelt or that no RUN line reads."""
    read = any("--verify-diagnostics" in run.command for run in runs)
    for number, line in enumerate(text.splitlines(), 1):
        comment = _COMMENT.search(line)
        match = comment and _EXPECTED.search(comment["text"])
        if not match:
            continue
        word = match["word"]
        plain = word.removesuffix("-re")
        if plain not in ("expected-error", "expected-warning", "expected-remark"):
            yield Fault(
                path, number, f"{word}: not read; write expected-error, -warning or -remark"
            )
        elif not _EXPECTED_FORM.match(match["rest"]):
            yield Fault(path, number, f"{word}: not of the form `{word} @+1 {{{{text}}}}`")
        elif not read:
            yield Fault(path, number, f"{word}: no RUN line has --verify-diagnostics")


def run_faults(path: Path, text: str, runs: Sequence[Run]) -> Iterator[Fault]:
    """RUN lines that do not use the file, or whose outcome nothing checks."""
    if not runs:
        yield Fault(path, 1, "no RUN line")
    for run in runs:
        if "||" in run.command:
            yield Fault(path, run.line, "|| hides a failure")
        for segment in run.segments:
            words = [
                word for word in segment.split() if word not in ("not", "env") and "=" not in word
            ]
            if words and words[0] in _PLAIN_COMMANDS:
                yield Fault(path, run.line, f"{words[0]}: write %shardpass or %filecheck")
            if "%filecheck" in segment and "%s" not in segment:
                yield Fault(path, run.line, "%filecheck without %s: it reads its checks from there")
            if "%shardpass" in segment and not re.search(r"%[stS]\b|%\{", segment + " "):
                yield Fault(path, run.line, "%shardpass without %s, %t or %S: it reads no file")
        if "%shardpass opt" in run.command and not _checks(run.command):
            yield Fault(path, run.line, "nothing looks at what this line prints or reports")
    commands = " ".join(run.command for run in runs)
    splits = bool(re.search(r"^// -----", text, re.MULTILINE))
    if splits and "--split-input-file" not in commands:
        yield Fault(path, 1, "`// -----` in the file, and no RUN line has --split-input-file")
    if not splits and "--split-input-file" in commands:
        yield Fault(path, 1, "--split-input-file, and no `// -----` in the file")
    if runs and "%s" not in commands.replace("%shardpass", ""):
        yield Fault(path, runs[0].line, "no RUN line uses the file (%s)")


def _checks(command: str) -> bool:
    looks = ("%filecheck", "--verify-diagnostics", " -o ", "--output", ">", "diff ", "cmp ")
    return any(look in command for look in looks) or command.startswith("not ")


def name_faults(
    path: Path, runs: Sequence[Run], names: Sequence[str], folder: Path
) -> Iterator[Fault]:
    """A file under ``passes/`` that is not named after a pass, or never runs it."""
    if folder not in path.parents:
        return
    name = pass_of(path, list(names))
    if name is None:
        near = difflib.get_close_matches("sp-" + path.stem, names, 1)
        hint = f"; did you mean {near[0].removeprefix('sp-')}{path.suffix}?" if near else ""
        yield Fault(path, 1, f"no pass is named sp-{path.stem}{hint}")
    elif not any(re.search(rf"\b{re.escape(name)}(?![\w-])", run.command) for run in runs):
        yield Fault(path, runs[0].line if runs else 1, f"no RUN line runs {name}")


def pass_faults(passes: Sequence[PassSource], folder: Path) -> Iterator[Fault]:
    """Passes whose five names differ, or that no lit test is named after."""
    for found in passes:
        bare = found.name.removeprefix("sp-")
        class_name = "".join(word.capitalize() for word in bare.split("-"))
        if found.path.stem != bare.replace("-", "_"):
            yield Fault(
                found.path, found.line, f"{found.name} belongs in {bare.replace('-', '_')}.py"
            )
        if found.class_name != class_name:
            yield Fault(found.path, found.line, f"{found.name} is the name of a class {class_name}")
        if not (folder / f"{bare}.mlir").is_file():
            yield Fault(found.path, found.line, f"{found.name} has no lit test passes/{bare}.mlir")


def lint_file(path: Path, text: str, names: Sequence[str], folder: Path) -> list[Fault]:
    """All faults of one test; ``folder`` is where the tests of passes lie."""
    runs = run_lines(text)
    faults = [
        *run_faults(path, text, runs),
        *directive_faults(path, text, prefixes_of(runs)),
        *expectation_faults(path, text, runs),
        *name_faults(path, runs, names, folder),
    ]
    return sorted(faults, key=lambda fault: fault.line)


def tests_under(paths: Sequence[Path]) -> list[Path]:
    """The lit tests among the paths and in the folders among them."""
    found: set[Path] = set()
    for path in paths:
        files = path.rglob("*") if path.is_dir() else [path]
        found.update(
            file
            for file in files
            if file.suffix in (".mlir", ".test") and "Inputs" not in file.parts
        )
    return sorted(found)


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
    tests = tests_under([path.resolve() for path in options.paths] or [suite])
    passes = passes_in(PROJECT / "shardpass" / "passes")
    names = [found.name for found in passes]

    faults = [] if options.paths else list(pass_faults(passes, folder))
    for test in tests:
        faults += lint_file(test, test.read_text(encoding="utf-8"), names, folder)
    proven = ""
    if options.prove and not faults:
        of_passes = [test for test in tests if folder in test.parents]
        faults += [Fault(path, 1, message) for path, message in prove(of_passes)]
        proven = f", {len(of_passes)} run without their pass"
    for fault in faults:
        print(fault)
    print(f"lit lint: {len(tests)} tests{proven}, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
