"""Paths on the command line are relative to where it was called, whatever passes do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardpass.cli.folder import same_folder
from tests.cli.conftest import PROJECT, RULES

PLUGIN = """\
import os
from typing import ClassVar
from shardpass import Pass

class Leave(Pass):
    "Go to another folder."
    name: ClassVar[str] = "acme-leave"
    def run(self, root, sink):
        os.chdir("elsewhere")
"""


@pytest.fixture
def leaving(folder: Path) -> Path:
    """A folder in which a plug-in goes to another one, where nothing is."""
    (folder / "acme.py").write_text(PLUGIN)
    facts = folder / "acme-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("[shardpass.passes]\nacme-leave = acme:Leave\n")
    (folder / "elsewhere").mkdir()
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "shardpass", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{PROJECT}{os.pathsep}{folder}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_opt_comes_back(leaving: Path) -> None:
    """For the output, the rules of the next part, and what MLIR prints behind the pass."""
    text = (leaving / "m.mlir").read_text()
    (leaving / "two.mlir").write_text(f"{text}// -----\n{text}")
    done = run(
        leaving,
        "opt",
        "two.mlir",
        "--split-input-file",
        "--sp-annotate=rules=r.toml",
        "--acme-leave",
        "--mlir-print-ir-after=acme-leave",
        "--mlir-print-ir-tree-dir=tree",
        "-o",
        "out.mlir",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (leaving / "out.mlir").read_text().count("sdy.mesh @mesh") == 2
    assert (leaving / "tree").is_dir()
    assert [*(leaving / "elsewhere").iterdir()] == []


def test_shard_comes_back(leaving: Path) -> None:
    done = run(leaving, "shard", "m.mlir", "--pipeline=acme-leave", "-o", "out.mlir")
    assert (done.returncode, done.stdout) == (0, "out.mlir\n")
    assert (leaving / "out.mlir").exists()
    assert [*(leaving / "elsewhere").iterdir()] == []


def test_a_failure_is_kept_where_the_command_was_called(leaving: Path) -> None:
    (leaving / "r.toml").write_text(RULES.replace("spec = []", 'spec = ["data"]'))
    done = run(
        leaving,
        "opt",
        "m.mlir",
        "--acme-leave",
        "--sp-annotate=rules=r.toml",
        "--mlir-pass-pipeline-crash-reproducer=kept.mlir",
    )
    assert done.returncode == 1
    assert "acme-leave,sp-annotate" in (leaving / "kept.mlir").read_text()


def test_it_is_the_folder_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")

    def leave_and_fail() -> None:
        with same_folder():
            os.chdir(tmp_path)
            os.rename("a", "b")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        leave_and_fail()
    assert Path.cwd() == tmp_path / "b"


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    os.rmdir(tmp_path / "a")
    with same_folder():
        os.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        os.getcwd()
