"""Environments are found, made and reused for the right reasons."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from project_environment import (
    Python,
    child_environment,
    find_python,
    install_key,
    probe,
    read_stamp,
    this_python,
)

TOOLS = Path(__file__).resolve().parent.parent.parent / "tools"

SETTINGS = """\
[build-system]
requires = ["setuptools"]
[project]
name = "x"
dependencies = ["numpy"]
[tool.ruff]
line-length = 100
"""


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def fake_python(path: Path, version: str) -> Path:
    return executable(path, f'echo \'["{version}", "{path}"]\'')


def test_this_python_is_what_its_probe_says():
    assert probe(sys.executable) == this_python()
    assert this_python().minor == f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_what_does_not_run_is_no_python(tmp_path: Path):
    assert probe(str(tmp_path / "absent")) is None
    assert probe(str(executable(tmp_path / "fails", "exit 127"))) is None
    assert probe(str(executable(tmp_path / "chatters", "echo hello"))) is None


def test_a_python_on_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = fake_python(tmp_path / "bin" / "python3.99", "3.99.4")
    monkeypatch.setenv("PATH", str(found.parent), prepend=os.pathsep)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    assert find_python("3.99") == Python("3.99.4", str(found))
    assert find_python("3.98") is None


def test_a_shim_with_nothing_behind_it_is_passed_over_for_the_newest_of_pyenv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shim = executable(tmp_path / "shims" / "python3.99", "echo 'not found' >&2; exit 127")
    for version in ("3.99.2", "3.99.10", "3.98.30"):
        fake_python(tmp_path / "versions" / version / "bin" / "python3", version)
    monkeypatch.setenv("PATH", str(shim.parent), prepend=os.pathsep)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    found = find_python("3.99")
    assert found is not None
    assert found.version == "3.99.10"


def test_only_what_is_installed_counts(tmp_path: Path):
    """A change of ruff's settings installs nothing; a new dependency or Python does."""
    python = this_python()

    def key(settings: str, python: Python = python) -> dict[str, object]:
        (tmp_path / "pyproject.toml").write_text(settings)
        return install_key(tmp_path, python, ["x"])

    before = key(SETTINGS)
    assert key(SETTINGS.replace("100", "90")) == before
    assert key(SETTINGS.replace("numpy", "jax")) != before
    assert key(SETTINGS, Python("3.99.1", python.executable)) != before


def test_an_unfinished_installation_has_no_stamp(tmp_path: Path):
    assert read_stamp(tmp_path) == {}
    (tmp_path / "shardpass-environment.json").write_text('{"key": ')
    assert read_stamp(tmp_path) == {}


def test_children_do_not_see_packages_of_another_python(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("VIRTUAL_ENV", "elsewhere")
    environment = child_environment(LANGUAGE="en")
    assert "PYTHONPATH" not in environment
    assert "VIRTUAL_ENV" not in environment
    assert environment["LANGUAGE"] == "en"
    assert environment["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize("command", ["demo", "test", "check"])
def test_a_machine_without_a_new_python_is_told_so(command: str, tmp_path: Path):
    for tool in ("bash", "dirname"):
        located = subprocess.run(["sh", "-c", f"command -v {tool}"], capture_output=True, text=True)
        (tmp_path / tool).symlink_to(located.stdout.strip())
    executable(tmp_path / "python3", "exit 1")
    run = subprocess.run(
        [str(tmp_path / "bash"), str(TOOLS / command)],
        env={"PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert run.stderr.startswith("This needs Python 3.11 or newer")


def test_the_commands_tell_what_they_do():
    run = subprocess.run(
        [str(TOOLS / "test"), "--help"], capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("``./tools/test``: all tests")
