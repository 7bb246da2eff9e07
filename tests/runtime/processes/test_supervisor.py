"""Processes that end in every way, and what becomes of the others."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.supervisor import supervise
from shardpass.runtime.processes.worker import Task
from tests.runtime.processes import tasks

#: No JAX in them: they start at once, and are silent for as long as a test likes.
TIMEOUT = 1.0
#: Seconds that the slowest machine may need on top.
SLACK = 20.0


def run(task: Task, *arguments: Any, count: int = 3, timeout: float = TIMEOUT) -> list[Any]:
    group = Group.of(count, None, None, timeout)
    return supervise(task, arguments, group, lambda step: None)


def lost(task: Task, *arguments: Any, **options: Any) -> ShardingError:
    """The error of a run that fails; nothing of it is left, and it did not take long."""
    before = time.monotonic()
    with pytest.raises(ShardingError) as caught:
        run(task, *arguments, **options)
    assert time.monotonic() - before < SLACK
    assert len(caught.value.diagnostics) == 1
    for pid in re.findall(r"pid (\d+)", str(caught.value)):
        assert not Path("/proc", pid).exists()
    return caught.value


def test_answers_come_in_the_order_of_the_processes():
    said: list[str] = []
    group = Group.of(3, None, None)
    answers = supervise(tasks.number_and_group, (), group, said.append)
    assert [answer[:2] for answer in answers] == [(0, 3), (1, 3), (2, 3)]
    assert said == ["answer as 0"]
    assert len({pid for _, _, pid in answers} | {os.getpid()}) == 4


def test_what_process_0_says_is_passed_on_without_gloo(capfd: pytest.CaptureFixture[str]):
    run(tasks.talk, count=2)
    assert capfd.readouterr() == ("", "process 0 talks\n")


@pytest.mark.parametrize("who", [0, 2])
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM"])
def test_a_process_that_a_signal_ends(how: str, who: int):
    error = lost(tasks.one_of_them, how, who)
    assert error.slug == "process-lost"
    assert re.match(
        rf"process {who} of 3 \(pid \d+\) was ended by {how}$", error.diagnostic.message
    )
    assert error.diagnostic.notes[0] == 'it was at "wait"'


def test_a_process_that_leaves_without_an_answer():
    error = lost(tasks.one_of_them, "exit", 1)
    assert "process 1 of 3" in error.diagnostic.message
    assert "ended with exit status 3 and no answer" in error.diagnostic.message


def test_a_process_that_is_stopped():
    error = lost(tasks.one_of_them, "SIGSTOP", 1)
    assert error.slug == "process-lost"
    told = r"process 1 of 3 \(pid \d+\) has been stopped by a signal for \d s"
    assert re.match(told, error.diagnostic.message)


def test_a_process_that_is_stopped_for_less_is_waited_for(tmp_path: Path):
    """A debugger, or a person with Ctrl-Z."""

    def nudge() -> None:
        while not (found := list(tmp_path.iterdir())):
            time.sleep(0.05)
        pid = int(found[0].name)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(pid, signal.SIGCONT)
        time.sleep(1.5)
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=nudge)
    thread.start()
    error = lost(tasks.write_and_wait, str(tmp_path), count=1)
    thread.join()
    assert "was ended by SIGKILL" in error.diagnostic.message


def test_a_process_that_raises():
    error = lost(tasks.one_of_them, "raise", 1)
    assert error.slug == "process-lost"
    assert "process 1 of 3" in error.diagnostic.message
    assert error.diagnostic.message.endswith("raised KeyError: 'what only one looks for'")
    assert any("KeyError" in note for note in error.diagnostic.notes)


def test_a_process_that_reports_an_error():
    error = lost(tasks.one_of_them, "refuse", 2)
    assert (error.slug, error.diagnostic.message) == ("bad-inputs", "no such file here")
    assert error.diagnostic.help == "copy it"
    (note,) = error.diagnostic.notes
    assert re.match(r"process 2 of 3 \(pid \d+\) raised this, and the others were ended", note)


def test_an_error_of_all_is_no_matter_of_processes():
    error = lost(tasks.all_refuse)
    assert (error.slug, error.diagnostic.message) == ("indivisible", "6 elements into 4 pieces")
    assert error.diagnostic.notes == ()


def test_who_is_waited_for_is_lost_and_not_who_gives_up():
    error = lost(tasks.give_up)
    assert error.slug == "process-lost"
    assert re.match(r"process 1 of 3 \(pid \d+\) does not answer", error.diagnostic.message)
    assert error.diagnostic.notes == ('it was at "reduce"',)


def test_a_process_that_hangs_outside_of_a_collective(tmp_path: Path):
    """JAX's heartbeats go on in it: only gloo's own time-out ends the waiting."""
    before = time.monotonic()
    with pytest.raises(ShardingError, match=r"process 1 of 2 \(pid \d+\) does not answer") as e:
        run(tasks.wait_in_a_collective, str(tmp_path), count=2, timeout=2)
    assert e.value.diagnostic.notes == ('it was at "add up"',)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert time.monotonic() - before < 60


def test_process_0_that_hangs_outside_of_a_collective(tmp_path: Path):
    """The others wait for it as long as it lives, and nobody computes anything any more."""
    before = time.monotonic()
    with pytest.raises(ShardingError, match=r"process 0 of 2 \(pid \d+\) does nothing") as e:
        run(tasks.do_not_come, str(tmp_path), count=2, timeout=5)
    assert e.value.diagnostic.notes == ('it was at "compile"',)
    assert e.value.slug == "process-lost"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert 20 <= time.monotonic() - before < 80


@pytest.mark.parametrize("who", [0, 2])
def test_a_process_that_computes_for_ever_in_a_program_of_all(who: int):
    """It is busy, and so not the one that waits."""
    error = lost(tasks.compute_together, who)
    assert error.slug == "process-lost"
    assert re.match(
        rf"process {who} of 3 \(pid \d+\) does not answer: the others waited \d+ s for it$",
        error.diagnostic.message,
    )
    assert error.diagnostic.notes == ('it was at "run"',)


def test_a_process_of_a_cluster_that_waits_for_others_is_left_to_wait():
    """They may have much to do, and JAX's client hears of it where they are gone."""
    group = Group.of(2, 1, "localhost:1234", 1)
    assert supervise(tasks.wait_in_vain, (), group, lambda step: None) == [None]


def test_a_process_of_a_cluster_that_hangs():
    group = Group.of(2, 1, "localhost:1234", 1)
    with pytest.raises(ShardingError, match=r"process 1 of 2 \(pid \d+\) has computed nothing"):
        supervise(tasks.hang, (), group, lambda step: None)


def test_a_process_that_computes_for_long_is_waited_for():
    assert run(tasks.compute, 14.0, count=2, timeout=1) == [0, 1]


def test_a_supervisor_that_is_interrupted_ends_all(tmp_path: Path):
    def interrupt() -> None:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(tasks.write_and_wait, str(tmp_path), count=2)
    thread.join()
    for path in tmp_path.iterdir():
        assert not Path("/proc", path.name).exists()
