"""Counts of the two runners, and the note of what passed on which files."""

import json
import subprocess
from pathlib import Path

import project_tests
import pytest
from project_environment import Environment
from project_tests import Counts, Outcome, lit_counts, pytest_counts, tree_digest
from run_tests import absolute

PROJECT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = Environment(Path(".venv"), "3.99.1", "9.9")


def test_counts_of_a_pytest_report(tmp_path: Path):
    report = tmp_path / "pytest.xml"
    report.write_text(
        '<testsuites><testsuite tests="12" failures="2" errors="1" skipped="3"/></testsuites>'
    )
    assert pytest_counts(report) == Counts(6, 3, 3)


def test_counts_of_a_lit_report(tmp_path: Path):
    report = tmp_path / "lit.json"
    codes = ["PASS", "PASS", "FAIL", "UNRESOLVED", "UNSUPPORTED"]
    report.write_text(json.dumps({"tests": [{"code": code} for code in codes]}))
    assert lit_counts(report) == Counts(2, 2, 1)


def test_counts_read_as_a_closing_line():
    assert str(Counts(7, 1)) == "7 passed, 1 failed"
    assert str(Counts(7, 0).plus(Counts(1, 0, 2))) == "8 passed, 0 failed, 2 skipped"


@pytest.mark.parametrize(
    ("counts", "status", "good"),
    [
        (Counts(3, 0), 0, True),
        (Counts(3, 0), 1, False),
        (Counts(3, 1), 0, False),
        (Counts(0, 0), 0, False),
    ],
)
def test_a_run_without_tests_is_not_good(counts: Counts, status: int, good: bool):
    assert Outcome(counts, status, 1.0).good is good


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("/out/\n")
    (tmp_path / "module.py").write_text("1\n")
    return tmp_path


def test_the_digest_follows_every_file_but_ignored_ones(repository: Path):
    before = tree_digest(repository)
    assert before is not None
    (repository / "out").mkdir()
    (repository / "out" / "log").write_text("x")
    assert tree_digest(repository) == before
    (repository / "module.py").write_text("2\n")
    assert tree_digest(repository) != before
    (repository / "module.py").write_text("1\n")
    assert tree_digest(repository) == before
    (repository / "new.py").touch()
    assert tree_digest(repository) != before


def test_there_is_no_digest_outside_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert tree_digest(tmp_path) is None


def test_a_pass_counts_again_only_on_the_same_files_and_versions(
    repository: Path, monkeypatch: pytest.MonkeyPatch
):
    (repository / "out").mkdir()
    monkeypatch.setattr(project_tests, "PROJECT", repository)
    monkeypatch.setattr(project_tests, "_NOTES", repository / "out" / "notes.json")
    assert project_tests.passed_before(ENVIRONMENT) is None

    digest = tree_digest(repository)
    assert digest is not None
    project_tests.note_passed(ENVIRONMENT, digest, Counts(5, 0))
    before = project_tests.passed_before(ENVIRONMENT)
    assert before is not None
    assert before[0] == Counts(5, 0)
    assert 0 <= before[1] < 60
    assert project_tests.passed_before(ENVIRONMENT._replace(jax="9.8")) is None

    (repository / "module.py").write_text("2\n")
    assert project_tests.passed_before(ENVIRONMENT) is None


def test_arguments_name_files_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    assert absolute("mine.py::test_x") == f"{tmp_path}/mine.py::test_x"
    assert absolute("tests/conftest.py") == f"{PROJECT}/tests/conftest.py"
    assert absolute("-k") == "-k"
    assert absolute("mesh and not axis") == "mesh and not axis"
