"""No child outlives its parent, however that ends; real processes, forked and spawned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardpass.runtime.ending import Spawned
from tests.runtime.fresh import REPOSITORY

_SOON = 10.0


class Pair:
    """A parent that waits for its child, which does ``task`` of ``child_tasks`` in ``folder``."""

    def __init__(self, folder: Path, task: str, kind: str, before: str = "") -> None:
        # A thread of its own keeps the parent from forking.
        thread = "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
        program = f"""
import signal, threading, time
from shardpass.runtime.child import in_child, may_fork
from tests.runtime import child_tasks
{before}
{thread if kind == "spawned" else ""}
assert may_fork() is {kind == "forked"}
in_child(child_tasks.{task}, {str(folder)!r})
"""
        self.parent = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stderr=subprocess.PIPE,
        )
        pid = folder / "pid"
        until = time.monotonic() + 60
        while not pid.exists():
            assert self.parent.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        self.child = int(pid.read_text())
        pid.unlink()

    def end(self, number: int) -> int:
        """Send the parent a signal; its exit code."""
        assert self.child_lives()
        self.parent.send_signal(number)
        _, said = self.parent.communicate(timeout=_SOON)
        assert said == b""
        return self.parent.returncode

    def child_lives(self) -> bool:
        try:
            state = Path(f"/proc/{self.child}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        return state not in "ZX"

    def child_ends(self) -> bool:
        until = time.monotonic() + _SOON
        while self.child_lives() and time.monotonic() < until:
            time.sleep(0.02)
        if alive := self.child_lives():
            os.kill(self.child, signal.SIGKILL)
        return not alive


@pytest.mark.parametrize("kind", ["forked", "spawned"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_parent_told_to_end_lets_its_child_clean_up(tmp_path: Path, number: int, kind: str):
    pair = Pair(
        tmp_path, "write_for_ever", kind, "signal.signal(signal.SIGINT, lambda *_: exit(7))"
    )
    assert len(os.listdir(tmp_path)) == 1
    assert pair.end(number) == (7 if number == signal.SIGINT else 128 + number)
    assert not pair.child_lives()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["forked", "spawned"])
def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path, kind: str):
    pair = Pair(tmp_path, "write_for_ever", kind)
    assert pair.end(signal.SIGKILL) == -signal.SIGKILL
    assert pair.child_ends()


@pytest.mark.parametrize("kind", ["forked", "spawned"])
def test_a_child_that_hears_nothing_is_killed(tmp_path: Path, kind: str):
    pair = Pair(tmp_path, "hear_nothing", kind)
    assert pair.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert not pair.child_lives()


def test_where_the_kernel_does_not_help_the_child_watches(tmp_path: Path):
    watched = (
        "import types; from shardpass.runtime import ending; "
        "ending.sys = types.SimpleNamespace(platform='elsewhere')"
    )
    pair = Pair(tmp_path, "write_for_ever", "forked", watched)
    pair.end(signal.SIGKILL)
    assert pair.child_ends()


def test_ignored_signals_stay_ignored(tmp_path: Path):
    """As under ``nohup``."""
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    pair = Pair(tmp_path, "write_for_ever", "forked", ignored)
    pair.parent.send_signal(signal.SIGHUP)
    os.kill(pair.child, signal.SIGHUP)
    time.sleep(0.3)
    assert pair.child_lives()
    assert pair.end(signal.SIGTERM) == 128 + signal.SIGTERM


def test_a_child_ended_by_somebody_else_says_so(tmp_path: Path):
    said = """
from shardpass.diagnostics import ShardingError
def in_child(task, folder, told=in_child):
    try:
        told(task, folder)
    except ShardingError as error:
        open(folder + "/said", "w").write(f"{error.slug}: {error.diagnostic.message}")
"""
    pair = Pair(tmp_path, "write_for_ever", "forked", said)
    os.kill(pair.child, signal.SIGTERM)
    pair.parent.communicate(timeout=_SOON)
    assert os.listdir(tmp_path) == ["said"]
    assert (tmp_path / "said").read_text() == (
        "process-aborted: the child process was ended by SIGTERM"
    )


def test_a_process_that_has_just_ended_is_not_stopped(monkeypatch: pytest.MonkeyPatch):
    """It may end between a look at its exit code and one at whether it is stopped."""
    child = Spawned(subprocess.Popen([sys.executable, "-c", ""]))
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with monkeypatch.context() as patch:
        patch.setattr(Spawned, "code", None)
        assert child.is_stopped is False
    assert child.wait() == 0
