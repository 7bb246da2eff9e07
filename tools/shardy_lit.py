"""Run Shardy's own lit tests with ``shardpass opt`` in place of its ``sdy_opt``.

    python tools/shardy_lit.py CHECKOUT             # a folder with shardy/dialect/sdy in it
    python tools/shardy_lit.py CHECKOUT --filter import/ --logs out/shardy

Shardy's sources are no part of this project: name a checkout. Every ``.mlir`` file under
``shardy/dialect/sdy`` that has a RUN line is run by lit, with the Python that runs this, so that
its jaxlib is the one that is measured. The programs that the RUN lines name are on PATH:

``sdy_opt``              ``shardpass opt``
``FileCheck``            ``filecheck --enable-var-scope``, of the ``filecheck`` package
``split-file``           ``tools/split_file.py``
``stablehlo-translate``  ``tools/stablehlo_interpret.py``

What fails is listed with its cause, read from what the test printed and from running its line with
other programs, LLVM's FileCheck among them where it is installed: see ``shardy_causes.py``. No
failure is expected beforehand. The exit status is 0 where lit could run, whatever failed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shardy_causes import Cause, cause_of, llvm_filecheck, speech, trial

PROJECT = Path(__file__).resolve().parent.parent
# The package has no __main__, and its script may not be on PATH.
LIT = (sys.executable, "-c", "from lit.main import main; main()")
TREE = Path("shardy", "dialect", "sdy")

_CONFIG = """\
import lit.formats
config.name = "sdy"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = {source!r}
config.test_exec_root = {scratch!r}
config.environment.update({environment!r})
"""

#: The programs that Shardy's RUN lines name, as words behind the Python of this run.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "sdy_opt": ("-m", "shardpass", "opt"),
    "FileCheck": ("-m", "filecheck", "--enable-var-scope"),
    "split-file": (str(PROJECT / "tools" / "split_file.py"),),
    "stablehlo-translate": (str(PROJECT / "tools" / "stablehlo_interpret.py"),),
}


def find_tests(tree: Path, pattern: str) -> list[Path]:
    """The files with RUN lines whose path inside of ``tree`` the pattern is found in."""
    return [
        path
        for path in sorted(tree.rglob("*.mlir"))
        if re.search(pattern, path.relative_to(tree).as_posix())
        and re.search(r"\bRUN:", path.read_text(encoding="utf-8", errors="replace"))
    ]


def make_programs(folder: Path, programs: Mapping[str, Sequence[str]]) -> None:
    """Write one executable for each name, with its words behind the Python of this run."""
    folder.mkdir(parents=True)
    # The package of this checkout, installed or not. Not by lit's environment: lit takes PYTHONPATH
    # for itself once it has run a command of its own, such as cat.
    path = f'PYTHONPATH={shlex.quote(str(PROJECT))}"${{PYTHONPATH:+:$PYTHONPATH}}"'
    for name, words in programs.items():
        script = folder / name
        command = shlex.join([sys.executable, *words])
        script.write_text(f'#!/bin/sh\n{path} exec {command} "$@"\n', encoding="utf-8")
        script.chmod(0o755)


def environment(programs: Path) -> dict[str, str]:
    """What the commands of a RUN line see beside lit's own."""
    return {
        "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
        "JAX_PLATFORMS": "cpu",
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }


def run_lit(tree: Path, tests: Sequence[Path], jobs: int, scratch: Path) -> list[dict[str, str]]:
    """lit's verdict on each test, with its name, code and output.

    Raises:
      SystemExit: lit itself failed.
    """
    suite = scratch / "suite"
    suite.mkdir()
    (suite / "lit.cfg.py").write_text(
        _CONFIG.format(
            source=str(tree), scratch=str(scratch / "out"), environment=environment(scratch / "bin")
        ),
        encoding="utf-8",
    )
    report = scratch / "report.json"
    names = [(suite / test.relative_to(tree)).as_posix() for test in tests]
    options = ["--quiet", "--ignore-fail", "--skip-test-time-recording", "-j", str(jobs)]
    run = subprocess.run(
        [*LIT, *options, "-v", "--output", str(report), *names],
        capture_output=True,
        text=True,
        check=False,
    )
    if not report.exists():
        raise SystemExit(f"lit did not run:\n{run.stdout}{run.stderr}")
    return json.loads(report.read_text(encoding="utf-8"))["tests"]


def causes(scratch: Path) -> Callable[[str], Cause]:
    """What tells the cause of a failure from lit's output of it, while ``scratch`` is there."""
    around, folder = environment(scratch / "bin"), scratch / "out"
    bare = scratch / "bare"
    make_programs(bare, {"sdy_opt": (str(PROJECT / "tools" / "bare_opt.py"),)})
    llvm = None
    if program := llvm_filecheck([Path(part) for part in os.get_exec_path()]):
        real = scratch / "llvm"
        real.mkdir()
        script = real / "FileCheck"
        command = shlex.join([str(program), "--enable-var-scope"])
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        # Beside the bare programs it says what they print, whatever the filecheck package makes
        # of it.
        shutil.copy(script, bare)
        llvm = trial(real, around, folder)
    return functools.partial(
        cause_of,
        say=speech(scratch / "bin", around, folder),
        with_llvm=llvm,
        with_jaxlib=trial(bare, around, folder),
    )


def find_failures(
    results: Sequence[dict[str, str]], tell: Callable[[str], Cause]
) -> list[tuple[str, Cause]]:
    """The tests that did not pass, each with its cause, in order of name."""
    failed = [result for result in results if result["code"] != "PASS"]
    return [
        (_name(result), tell(result["output"]))
        for result in sorted(failed, key=lambda result: result["name"])
    ]


def write_logs(results: Sequence[dict[str, str]], folder: Path) -> None:
    """The output of each test that did not pass, in a file of its own."""
    for result in results:
        if result["code"] != "PASS":
            log = folder / f"{_name(result)}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(result["output"], encoding="utf-8")


def _name(result: dict[str, str]) -> str:
    return result["name"].removeprefix("sdy :: ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, count, and list what failed with its cause."""
    parser = argparse.ArgumentParser(
        description="Run Shardy's own lit tests with `shardpass opt` in place of sdy_opt."
    )
    parser.add_argument("checkout", type=Path, help=f"a folder with {TREE} in it")
    parser.add_argument(
        "--filter", default="", metavar="REGEX", help="only tests with this in their path"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--logs", type=Path, help="where the output of each failing test goes")
    options = parser.parse_args(arguments)
    tree = (options.checkout / TREE).resolve()
    tests = find_tests(tree, options.filter)
    if not tests:
        parser.error(f"no file with a RUN line under {tree}")
    with tempfile.TemporaryDirectory() as scratch:
        make_programs(Path(scratch, "bin"), PROGRAMS)
        results = run_lit(tree, tests, options.jobs, Path(scratch))
        failures = find_failures(results, causes(Path(scratch)))
    for name, cause in failures:
        print(f"{name}\n    {cause}")
    if options.logs:
        write_logs(results, options.logs)
    counts = Counter(cause.kind for _, cause in failures)
    for kind, count in counts.most_common():
        print(f"{count:4} {kind}")
    print(f"{len(results) - len(failures)} passed, {len(failures)} failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
