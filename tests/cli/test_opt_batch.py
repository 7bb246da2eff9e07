"""Many files in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_opt_deaths import DEADLY, GOOD, PASS

BAD = "func.func @main( {\n"


@pytest.fixture
def files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"a.mlir": GOOD, "b.mlir": BAD, "c.mlir": DEADLY, "d.mlir": GOOD}.items():
        (folder / name).write_text(text)
    for name in ("out", "in", "tmp"):
        (folder / name).mkdir()
    (folder / "in" / "a.mlir").write_text(GOOD)
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    return folder


def test_each_file_by_itself_whatever_becomes_of_the_others(shardpass: Run, files: Path) -> None:
    names = ["a.mlir", "b.mlir", "none.mlir", "c.mlir", "d.mlir"]
    done = shardpass("opt", "--batch", *names, f"-{PASS}", "-o", "out")
    assert (done.returncode, done.stdout) == (3, "")
    assert sorted(path.name for path in (files / "out").iterdir()) == ["a.mlir", "d.mlir"]
    alone = shardpass("opt", "a.mlir", f"-{PASS}")
    assert (files / "out" / "a.mlir").read_text() == alone.stdout
    heads = [line for line in done.stderr.splitlines() if "error[" in line]
    assert [line.split("error[")[1].split("]")[0] for line in heads] == [
        "mlir",
        "unreadable",
        "process-aborted",
    ]
    assert heads[0].startswith("b.mlir:1:")
    assert heads[2].startswith(f"c.mlir: error[process-aborted]: in {PASS}")


def test_all_well(shardpass: Run, files: Path) -> None:
    done = shardpass("opt", "a.mlir", "d.mlir", "--cse", "--batch", "--output=out")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_expected_diagnostics_need_no_folder(shardpass: Run, files: Path) -> None:
    (files / "b.mlir").write_text(f"// expected-error @+1 {{{{expected}}}}\n{BAD}")
    done = shardpass("opt", "--batch", "a.mlir", "b.mlir", "--verify-diagnostics")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["a.mlir", "in/a.mlir", "-o", "out"], 2, "a.mlir and in/a.mlir would both be written to"),
        (["a.mlir", "-o", "."], 2, "a.mlir would be written over itself"),
        (["a.mlir", "-o", "in/.."], 2, "a.mlir would be written over itself"),
        (["a.mlir"], 2, "--batch wants a folder for the results"),
        (["-o", "out"], 2, "--batch wants the names of files"),
        (["a.mlir", "-", "-o", "out"], 2, "--batch wants the names of files"),
        (["a.mlir", "-o", "none"], 1, "cannot write to none: there is no such folder"),
        (
            ["a.mlir", "-o", "out", "-mlir-pass-pipeline-crash-reproducer=x"],
            2,
            "--mlir-pass-pipeline-crash-reproducer names one file",
        ),
    ],
)
def test_what_cannot_be(
    words: list[str], code: int, message: str, shardpass: Run, files: Path
) -> None:
    done = shardpass("opt", "--batch", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert [*(files / "out").iterdir()] == []
    assert (files / "a.mlir").read_text() == GOOD
