"""What reaches a script under ``shardpass run-script``: each signal once, whoever gets it."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardpass.cli.witness import TOGETHER, witness
from tests.cli.conftest import PROJECT, RULES

#: Takes note of what it gets for two seconds behind the first signal, and prints it.
NOTING = """\
import signal
import time

got = []
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, _: got.append(signal.Signals(number).name))

until = None
print("waiting", flush=True)
while until is None or time.monotonic() < until:
    try:
        while until is None or time.monotonic() < until:
            time.sleep(0.02)
            if got and until is None:
                until = time.monotonic() + 1.5
    except KeyboardInterrupt:
        got.append("KeyboardInterrupt")
print(*sorted(got), flush=True)
"""
OTHERS = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


#: Starts a command as a terminal does: what a shell starts in the background ignores some signals.
HEARING = """\
import os, signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
    signal.signal(getattr(signal, name), signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "shardpass", *sys.argv[1:]])
"""
WORDS = ("run-script", "-q", "train.py", "--rules", "r.toml")


@contextlib.contextmanager
def running(folder: Path, text: str, **options) -> Iterator[subprocess.Popen[str]]:
    """The command in a process group of its own, once its script has said "waiting"."""
    (folder / "train.py").write_text(text)
    (folder / "r.toml").write_text(RULES)
    process = subprocess.Popen(
        [sys.executable, "-c", HEARING, *WORDS],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
        **options,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "waiting\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("send", [os.killpg, os.kill], ids=["the group", "the command alone"])
def test_each_signal_reaches_the_script_once(
    folder: Path, send: Callable[[int, signal.Signals], None]
):
    with running(folder, NOTING) as process:
        for number in OTHERS:
            send(process.pid, number)
        # Python hears no other signal of those that come together with an interrupt.
        time.sleep(0.3)
        send(process.pid, signal.SIGINT)
        assert process.stdout is not None
        got = process.stdout.readline().split()
        assert got == ["KeyboardInterrupt", *sorted(number.name for number in OTHERS)]
        assert process.wait(20) == 0


def test_an_interrupt_of_the_group_leaves_saving_alone(folder: Path):
    """What a script does about an interrupt is not interrupted by the same one."""
    text = """\
import time
try:
    print("waiting", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)
    print("saved", flush=True)
    raise
"""
    with running(folder, text, stderr=subprocess.DEVNULL) as process:
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "saved\n"
        assert process.wait(20) == 130


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGQUIT])
def test_a_script_that_a_signal_ends(folder: Path, number: signal.Signals):
    """It ends the script as it would under python, and the exit code is a shell's."""
    text = "import resource, time\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    with running(folder, text + "print('waiting', flush=True)\ntime.sleep(60)\n") as process:
        os.kill(process.pid, number)
        assert process.wait(20) == 128 + number


@pytest.mark.parametrize("send", [os.killpg, os.kill], ids=["the group", "the command alone"])
def test_stopping_and_going_on(folder: Path, send: Callable[[int, signal.Signals], None]):
    with running(folder, NOTING) as process:
        send(process.pid, signal.SIGTSTP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        os.kill(process.pid, signal.SIGUSR1)
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 2.5)[0] == []
        send(process.pid, signal.SIGCONT)
        assert process.stdout.readline() == "SIGUSR1\n"
        assert process.wait(20) == 0


@pytest.mark.filterwarnings("ignore:os.fork")  # JAX, in this process, warns of any.
def test_a_script_at_a_terminal(folder: Path):
    """It reads from it, and what the terminal interrupts is interrupted once."""
    text = NOTING + 'print("hello", input("name? "), flush=True)\n'
    (folder / "train.py").write_text(text)
    (folder / "r.toml").write_text(RULES)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(PROJECT)
        os.execv(sys.executable, [sys.executable, "-c", HEARING, *WORDS])
    try:
        _until(terminal, "waiting")
        time.sleep(0.2)
        os.write(terminal, b"\x03")
        assert _until(terminal, "name? ").count("KeyboardInterrupt") == 1
        os.write(terminal, b"you\n")
        _until(terminal, "hello you")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(terminal)


def _until(terminal: int, wanted: str) -> str:
    """What a terminal shows until ``wanted`` is in it."""
    shown = ""
    until = time.monotonic() + 30
    while wanted not in shown:
        assert time.monotonic() < until, shown
        if select.select([terminal], [], [], 1)[0]:
            try:
                shown += os.read(terminal, 4096).decode()
            except OSError:
                pytest.fail(f"it has ended: {shown}")
    return shown


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_witness_of_nothing():
    """What this process gets alone is known to be so in a moment, and nothing stays blocked."""
    with witness([signal.SIGUSR1]) as beside:
        assert beside.has_seen(signal.SIGUSR1, time.monotonic()) is None
        assert beside.has_seen(signal.SIGUSR1, time.monotonic() - 2 * TOGETHER) is False
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
