"""Faults of shardpass itself."""

from __future__ import annotations

import pytest

from shardpass.cli.console import Console
from shardpass.cli.guard import DIED, run_body
from shardpass.mlir import files, reading


def _faulty() -> int:
    return int("no number")


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_a_traceback_is_shown_if_asked_for(
    asked: bool, quiet: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHARDPASS_TRACEBACK", "1" if asked else "")
    # What a child sets for itself: here it would have later tests ignore signals as they save.
    monkeypatch.setattr(files, "around_rename", files.around_rename)
    monkeypatch.setattr(reading, "around_reading", reading.around_reading)
    told: list[str] = []
    assert run_body(_faulty, (), Console(quiet=quiet), told.append) == DIED
    assert ("in _faulty" in "".join(told)) is asked
    assert "error[internal]: ValueError: invalid literal for int()" in told[-1]
