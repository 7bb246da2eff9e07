"""The lost process, told from those that it took along."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.runtime.processes.verdict import Seen, verdict, waits_for_another

ABORTED = """\
F1130 17:08:46.928534   22160 client.h:86] Terminating process because the JAX distributed service \
detected fatal errors. This most likely indicates that another task died; absl::Status: INTERNAL: \
Shutdown barrier has failed.
Barrier result: 'INTERNAL: task is set to ERROR: UNAVAILABLE: Task 2 heartbeat timeout. This \
indicates that the remote task has failed'
"""
UNHEALTHY = """\
F1130 17:09:00.254682   22521 client.h:80] Terminating process because the JAX distributed service \
detected fatal errors. UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):
2
The tasks have crashed.
"""
STREAM = """\
F1130 17:09:00.254682   22521 client.h:80] Terminating process because the JAX distributed service \
detected fatal errors. UNAVAILABLE: Failed to send RPC to coordination service.
"""
GLOO = ShardingError(
    "run-failed", "running m failed: UNKNOWN: Gloo all-reduce failed: Connection closed by peer"
)
#: What gloo says in a process that another one has not connected to.
GLOO_STARTS = ShardingError(
    "run-failed",
    "running m failed: UNKNOWN: Gloo context initialization failed: DEADLINE_EXCEEDED: "
    "GetKeyValue() timed out with key: cpu:gloo/0,1,2048,2049/2 and duration: 29.9s",
)
SERVICE = ShardingError(
    "run-failed",
    "UNKNOWN: DEADLINE_EXCEEDED: timed out "
    "[type.googleapis.com/tensorflow.CoordinationServiceError='']",
)
NOT_ALL = """\
F1130 20:58:34.426644   23432 client.h:80] Terminating process because the JAX distributed service \
detected fatal errors. This most likely indicates that another task died; see the other task logs \
for more details. absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded

RPC: /xla.coordination.CoordinationService/RegisterTask
"""
TWICE = """\
E1130 20:58:50.422718   23939 coordination_service.cc:518] [16122064653286103701] 1 unexpectedly \
tried to connect with a different incarnation. It has likely restarted.
F1130 20:58:50.424472   23948 client.h:80] Terminating process because the JAX distributed service \
detected fatal errors. absl::Status: ABORTED: 1 unexpectedly tried to connect with a different \
incarnation. It has likely restarted.
"""
NCCL = ("JaxRuntimeError: INTERNAL: NCCL operation ncclAllReduce failed", "Traceback ...")


def seen(number: int, **known: object) -> Seen:
    running = Seen(number=number, count=3, pid=100 + number, step="run sharded")
    return replace(running, **known)  # pyright: ignore[reportArgumentType]


def told(*workers: Seen) -> str:
    error = verdict(workers, timeout=5)
    assert error.slug == "process-lost"
    return error.diagnostic.message


def test_who_died_before_who_was_aborted_for_it():
    """In whatever order they were seen."""
    aborted, killed = seen(0, code=-6, told=ABORTED), seen(2, code=-9)
    assert told(aborted, killed, seen(1)) == "process 2 of 3 (pid 102) was ended by SIGKILL"
    assert told(killed, aborted, seen(1)) == "process 2 of 3 (pid 102) was ended by SIGKILL"


@pytest.mark.parametrize(
    "error", [GLOO, GLOO_STARTS, SERVICE, NCCL], ids=["gloo", "connecting", "service", "nccl"]
)
def test_who_is_stopped_before_whose_collective_failed(error: object):
    assert (
        told(seen(0, error=error), seen(1, code=-6, told=STREAM), seen(2, stopped=4.0))
        == "process 2 of 3 (pid 102) has been stopped by a signal for 4 s"
    )


def test_who_died_before_who_is_stopped():
    """A process that is stopped by the death of another, in a debugger say."""
    assert "process 1 of 3" in told(seen(1, code=-11), seen(0, stopped=9.0), seen(2))


def test_who_raised_before_who_is_stopped_for_a_moment():
    raised = seen(1, error=("KeyError: 'x'", "Traceback\n  File\nKeyError: 'x'"))
    assert told(raised, seen(0, stopped=0.5), seen(2)) == (
        "process 1 of 3 (pid 101) raised KeyError: 'x'"
    )
    assert "process 0 of 3 (pid 100) has been stopped" in told(
        raised, seen(0, stopped=5.0), seen(2)
    )


@pytest.mark.parametrize("error", [GLOO, GLOO_STARTS, SERVICE])
def test_who_is_silent_when_the_others_gave_up(error: object):
    assert told(seen(0, error=error), seen(2, error=error), seen(1)) == (
        "process 1 of 3 (pid 101) does not answer: the others waited 5 s for it"
    )


def test_who_was_aborted_with_process_0_that_gave_up_waiting():
    assert "process 1 of 3 (pid 101) does not answer" in told(
        seen(0, error=GLOO), seen(2, error=GLOO), seen(1, code=-6, told=STREAM)
    )


def test_whom_process_0_waited_for_at_a_meeting():
    """The third waits for process 0, and is silent as well."""
    error = ShardingError("process-lost", "process 2 of 3 is not ready to run 5 s after process 0")
    assert "process 2 of 3 (pid 102) does not answer" in told(
        seen(0, error=error), seen(1), seen(2)
    )


@pytest.mark.parametrize("text", [ABORTED, UNHEALTHY], ids=["barrier", "heartbeats"])
def test_whom_jax_misses_on_another_machine(text: str):
    error = verdict([seen(0, code=-6, told=text)], timeout=5)
    assert error.slug == "process-lost"
    assert error.diagnostic.message == "process 2 of 3 has not been heard of for 5 s"
    (note,) = error.diagnostic.notes
    assert note == 'process 0 of 3 (pid 100) gave up; it was at "run sharded"'


def test_the_coordinator_on_another_machine():
    error = verdict([seen(1, code=-6, told=STREAM)], timeout=5)
    assert error.diagnostic.message == (
        "another of 3 processes is lost, likely process 0, the coordinator"
    )
    assert error.diagnostic.notes[1].startswith("Terminating process because the JAX")


def test_whom_process_0_misses_on_another_machine():
    error = ShardingError("process-lost", "process 2 of 3 is not ready to run 5 s after process 0")
    assert verdict([seen(0, error=error)], timeout=5) is error


def test_an_abort_of_xlas_own_is_no_abort_for_another():
    text = "F1130 02:02:23.260038    7617 hlo_sharding.cc:747] Check failed: a == b (4 vs. 5)"
    error = verdict([seen(0, code=-6, told=text), seen(1), seen(2)], timeout=5)
    assert error.diagnostic.message == "process 0 of 3 (pid 100) was ended by SIGABRT"
    assert error.diagnostic.notes == ('it was at "run sharded"', "Check failed: a == b (4 vs. 5)")


def test_errors_that_differ_are_the_first_ones_own():
    first = seen(1, error=ShardingError("bad-inputs", "no a.npz"))
    second = seen(0, error=ShardingError("bad-inputs", "no b.npz"))
    error = verdict([first, second, seen(2)], timeout=5)
    assert error.diagnostic.message == "no a.npz"
    assert "process 1 of 3 (pid 101) raised this" in error.diagnostic.notes[0]


def test_a_process_that_had_not_begun():
    error = verdict([seen(1, code=1, step="", told="ModuleNotFoundError: no jax")], timeout=5)
    assert error.diagnostic.notes == ("it had not begun", "ModuleNotFoundError: no jax")


def test_whom_a_process_names_that_gloo_did_not_connect():
    """The third waits as well; how long, and what helps, is that error's to say."""
    error = ShardingError(
        "process-lost",
        "process 2 of 3 does not come to a collective, which process 0 has waited 30 s at",
        help="see to it",
    )
    found = verdict([seen(0, error=error), seen(1), seen(2)], timeout=60)
    assert found.diagnostic.message == (
        "process 2 of 3 (pid 102) does not answer: the others waited 30 s for it"
    )
    assert found.diagnostic.help == "see to it"
    assert verdict([seen(0, error=error)], timeout=60) is error


def test_who_computes_when_the_others_wait_in_the_same_program():
    workers = [
        seen(0, is_together=True, idle=7.2),
        seen(1, is_together=True, idle=0.5),
        seen(2, is_together=True, idle=6.0),
    ]
    assert waits_for_another(workers, timeout=5)
    assert told(*workers) == (
        "process 1 of 3 (pid 101) does not answer: the others waited 7 s for it"
    )


@pytest.mark.parametrize(
    "workers",
    [
        [seen(0, is_together=True, idle=6.9), seen(1, is_together=True)],
        [seen(0, is_together=True, idle=99.0), seen(1, is_together=False)],
        [seen(0, is_together=False, idle=99.0), seen(1, is_together=True)],
        [seen(0, is_together=True, idle=99.0), seen(1, is_together=True, idle=99.0)],
        [seen(0, is_together=True, idle=99.0)],
    ],
    ids=["not-yet", "one-at-something-else", "the-other-as-well", "nobody-computes", "alone"],
)
def test_who_waits_for_nobody_that_computes_in_the_same_program(workers: list[Seen]):
    assert not waits_for_another(workers, timeout=5)


def test_not_all_processes_came():
    error = verdict([seen(1, code=-6, told=NOT_ALL, step="join")], timeout=5, start=40)
    assert error.slug == "process-lost"
    assert error.diagnostic.message == "not all of 3 processes joined within 40 s"
    assert error.diagnostic.notes == ('process 1 of 3 (pid 101) gave up; it was at "join"',)


def test_a_process_that_came_twice():
    assert told(seen(0, code=-6, told=TWICE)) == (
        "there are two processes 1 of 3, or it was started again"
    )


def test_a_port_that_was_taken_in_the_last_moment():
    text = "E1130 20:59:24.107605   24476 add_port.cc:83] Failed to add port to server: No address"
    error = verdict([seen(0, code=-11, told=text)], timeout=5)
    assert error.slug == "bad-coordinator"
    assert error.diagnostic.message == "process 0 of 3 (pid 100) cannot listen for the others"
    assert error.diagnostic.notes == ("Failed to add port to server: No address",)


def test_who_did_not_come_where_all_are_on_this_machine():
    came = [seen(number, code=-6, told=NOT_ALL, is_waiting=True) for number in (0, 2)]
    assert verdict([*came, seen(1)], timeout=5, start=40).diagnostic.message == (
        "process 1 of 3 (pid 101) has not joined the others within 40 s"
    )


def test_who_hangs_where_the_others_wait_for_it():
    workers = [seen(0, is_waiting=True, idle=20), seen(1, idle=20), seen(2, is_waiting=True)]
    assert told(*workers).startswith("process 1 of 3 (pid 101) does nothing")
