"""The environment of the old jax: what the tests are told of it, made or not."""

import subprocess
import sys
from types import SimpleNamespace

import historical_jax
import pytest
from historical_jax import REQUIREMENTS, VARIABLE, offer_historical_jax


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Commands that were run, in a project of its own; ``status`` is what they return."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setattr(historical_jax, "PROJECT", tmp_path)
    monkeypatch.setattr(historical_jax, "OUT", tmp_path)
    done = SimpleNamespace(run=[], status=[0, 0])

    def run(command, **_):
        done.run.append(command)
        return SimpleNamespace(returncode=done.status[len(done.run) - 1])

    monkeypatch.setattr(
        historical_jax, "subprocess", SimpleNamespace(run=run, STDOUT=subprocess.STDOUT)
    )
    return done


def test_one_that_is_given_is_used(commands, monkeypatch):
    monkeypatch.setenv(VARIABLE, sys.executable)
    assert offer_historical_jax() is None
    assert commands.run == []


def test_it_is_made_once(commands, tmp_path, monkeypatch):
    folder = tmp_path / ".venv-historical"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    assert offer_historical_jax() is None
    make, install = commands.run
    assert make[1:] == ["-m", "venv", "--clear", str(folder)]
    assert install[0] == str(folder / "bin" / "python")
    assert install[-len(REQUIREMENTS) :] == list(REQUIREMENTS)
    assert historical_jax.os.environ[VARIABLE] == str(folder / "bin" / "python")
    monkeypatch.setenv(VARIABLE, "")
    assert offer_historical_jax() is None
    assert len(commands.run) == 2


@pytest.mark.parametrize("status", [[1], [0, 1]])
def test_why_there_is_none(commands, status, capsys):
    commands.status = status
    fault = offer_historical_jax()
    assert fault == "jax==0.4.38 could not be installed, see pip.venv-historical.log"
    assert historical_jax.os.environ[VARIABLE] == fault
    assert f"{fault}; the tests that compare with it are skipped" in capsys.readouterr().out


def test_without_a_python_for_it(commands, monkeypatch):
    monkeypatch.setattr(historical_jax, "find_python", lambda minor: None)
    assert offer_historical_jax() == (
        "no Python 3.11, 3.12, 3.13, 3.10 here, which jax==0.4.38 needs"
    )
    assert commands.run == []
