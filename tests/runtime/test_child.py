"""Deaths of a child process, and everything short of it."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.runtime import check, in_child
from shardpass.runtime.child import death, may_fork
from tests.runtime import child_tasks as tasks
from tests.runtime.fresh import run_python


class TestSpawned:
    """In this process JAX has been imported and used, so each child is a new Python."""

    def test_a_fork_would_not_be_safe(self):
        import jax

        jax.devices()
        assert may_fork() is False

    def test_results_and_progress_come_back(self):
        told: list[str] = []
        assert in_child(tasks.halves, 3, last=2, progress=told.append) == [1.5, 1.0]
        assert told == ["half of 3", "half of 2"]

    def test_the_child_goes_on_when_what_it_told_was_heard(self, tmp_path: Path):
        """Else what the two write to one terminal stands there in any order."""
        written = tmp_path / "written"

        def hear(told: str) -> None:
            time.sleep(0.3)
            with written.open("a") as file:
                file.write(told)

        in_child(tasks.tell_and_write, str(written), progress=hear)
        assert written.read_text() == "told 1\nwritten 1\ntold 2\nwritten 2\n"

    def test_errors_keep_all_that_they_carry(self):
        with pytest.raises(ShardingError) as caught:
            in_child(tasks.fail_twice)
        assert [d.slug for d in caught.value.diagnostics] == ["syntax", "indivisible"]
        assert caught.value.diagnostics[1].help == "pad to 8"

    def test_other_exceptions_are_internal(self):
        with pytest.raises(ShardingError, match="ZeroDivisionError: division by zero") as caught:
            in_child(tasks.divide, 1, 0)
        assert caught.value.slug == "internal"

    def test_an_abort(self, capfd: pytest.CaptureFixture[str]):
        with pytest.raises(ShardingError, match="was ended by SIGABRT") as caught:
            in_child(tasks.abort_as_xla_does)
        assert caught.value.slug == "process-aborted"
        assert caught.value.diagnostic.notes == ("Check failed: leaf_count == 5 (4 vs. 5)",)
        assert capfd.readouterr().err == ""

    def test_exit_without_an_answer(self):
        with pytest.raises(ShardingError, match="exit status 3 and no answer") as caught:
            in_child(tasks.leave, 3)
        assert caught.value.slug == "process-aborted"

    def test_xlas_log_is_dropped_and_the_rest_passed_on(self, capfd: pytest.CaptureFixture[str]):
        assert in_child(tasks.talk) == "done"
        assert capfd.readouterr().err == "something of its own\n"


class TestForked:
    def test_a_fresh_process_forks_even_with_jax_imported(self):
        told = run_python(
            """
            import jax, os
            from shardpass.runtime.child import in_child, may_fork
            print(may_fork(), in_child(os.getppid) == os.getpid())
            """
        )
        assert told.split() == ["True", "True"]

    def test_deaths(self):
        told = run_python(
            """
            import jax
            from shardpass.diagnostics import ShardingError
            from shardpass.runtime.child import in_child
            from tests.runtime import child_tasks as tasks
            for task in (tasks.abort_as_xla_does, tasks.touch_nothing, tasks.be_killed):
                try:
                    in_child(task)
                except ShardingError as error:
                    print(error.slug, error.diagnostic.message.split()[-1])
            """
        )
        assert told.splitlines() == [
            "process-aborted SIGABRT",
            "process-aborted SIGSEGV",
            "process-aborted SIGKILL",
        ]

    def test_a_check_and_then_another(self):
        """The parent starts nothing itself, so that it can fork as often as it likes."""
        told = run_python(
            """
            from shardpass.runtime import check, in_child, request_cpu_devices
            from shardpass.runtime.child import may_fork
            from tests.runtime import child_tasks as tasks
            request_cpu_devices(8)
            for _ in range(2):
                print(may_fork(), in_child(check, tasks.LAYER, devices=8).ok)
            """
        )
        assert told.split() == ["True"] * 4


def test_an_abort_of_xla_itself():
    """mhlo.sharding on arguments under Shardy: 0.12.0.1 aborts, 0.10.2 ignores it."""
    import jax

    if jax.__version_info__ < (0, 12):
        assert in_child(tasks.compile_mhlo_under_shardy) == ["{replicated}", "{replicated}"]
        return
    with pytest.raises(ShardingError, match="was ended by SIGABRT") as caught:
        in_child(tasks.compile_mhlo_under_shardy)
    assert "Check failed: hloSharding.IsReplicated()" in caught.value.diagnostic.notes[0]


def test_a_check_in_a_child_gives_the_same_rows():
    mine, childs = check(tasks.LAYER), in_child(check, tasks.LAYER)
    assert childs.rows == mine.rows


def test_memory_is_named_where_the_kernel_kills():
    error = death(-9, "")
    assert error.slug == "process-aborted"
    assert "out of memory" in (error.diagnostic.help or "")


def test_stack_traces_say_nothing():
    told = textwrap.dedent(
        """\
        I1130 01:57:52.682438    5995 service.cc:153] XLA service initialized
        F1130 02:02:23.260038    7617 hlo_sharding.cc:747] Check failed: a == b (1 vs. 2)
        *** Check failure stack trace: ***
            @     0x7f1234567890  absl::LogMessage::SendToLog()
        Fatal Python error: Aborted
        Thread 0x00007f (most recent call first):
          File "a.py", line 3 in main
        """
    )
    assert death(-6, told).diagnostic.notes == ("Check failed: a == b (1 vs. 2)",)
