"""Faults of shardpass itself."""

from __future__ import annotations

import pytest

from shardpass.cli.console import Console
from shardpass.cli.guard import DIED, run_body


def _faulty() -> int:
    return int("no number")


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_a_traceback_is_shown_if_asked_for(
    asked: bool, quiet: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHARDPASS_TRACEBACK", "1" if asked else "")
    told: list[str] = []
    assert run_body(_faulty, (), Console(quiet=quiet), told.append) == DIED
    assert ("in _faulty" in "".join(told)) is asked
    assert "error[internal]: ValueError: invalid literal for int()" in told[-1]
