"""XLA's own sharding parser, asked about many texts at once, in processes that it may kill.

jaxlib aborts the process on some texts, and on others would take all memory or time. So this file,
run as a program, is a server: it imports jaxlib once, forks a worker for the texts it is sent, and
forks the next one behind the text that killed the last. :func:`ask` is its client.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["accepted", "refused", "aborted"]
Extra = Literal["v2", "axis sizes"]

# What one worker may take; XLA asks for as many devices as a text claims.
_MEMORY = 6 * 2**30
_SECONDS = 10


@dataclass(frozen=True)
class Answer:
    """What XLA made of a text.

    ``text`` is the canonical text of what was accepted, the message of a refusal, or the signal of
    an abort; ``extra`` is what else was asked for.
    """

    outcome: Outcome
    text: str
    extra: str = ""


def ask(texts: Sequence[str], extra: Extra | None = None) -> list[Answer]:
    """XLA's answer to each of ``texts``, in order.

    With ``extra``, also the text of ``v3_to_v2_sharding()``, or the list of ``get_axis_sizes()``.
    """
    request = json.dumps({"texts": list(texts), "extra": extra})
    done = subprocess.run(
        [sys.executable, __file__], input=request, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the oracle itself failed:\n{done.stderr[-2000:]}")
    return [Answer(*record) for record in map(json.loads, done.stdout.splitlines())]


def _serve(texts: Sequence[str], extra: Extra | None) -> None:
    sharding_class = _sharding_class()
    while texts:
        answers, status = _one_worker(sharding_class, texts, extra)
        for answer in answers:
            print(json.dumps(answer))
        texts = texts[len(answers) :]
        if not texts:
            return
        killed_by = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "exit"
        print(json.dumps(("aborted", killed_by)))
        texts = texts[1:]


def _one_worker(
    sharding_class: Any, texts: Iterable[str], extra: Extra | None
) -> tuple[list[tuple[str, ...]], int]:
    """The answers up to the first text that kills the worker, and how it ended."""
    reading, writing = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # XLA prints its stack
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(writing, "w") as results:
            # Nothing may be opened: to find names for its stack, XLA would read its own 300 MB.
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
            for text in texts:
                signal.alarm(_SECONDS)
                print(json.dumps(_answer(sharding_class, text, extra)), file=results, flush=True)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as results:
        answers = [tuple(json.loads(line)) for line in results]
    return answers, os.waitpid(worker, 0)[1]


def _answer(sharding_class: Any, text: str, extra: Extra | None) -> tuple[str, ...]:
    try:
        sharding = sharding_class.from_string(text)
        canonical = str(sharding)
        if extra == "v2":
            return "accepted", canonical, str(sharding.v3_to_v2_sharding())
        if extra == "axis sizes":
            return "accepted", canonical, str(list(sharding.get_axis_sizes()))
        return "accepted", canonical
    except (RuntimeError, ValueError, MemoryError) as error:  # jaxlib's error is a RuntimeError
        return "refused", str(error)[:300]


def _sharding_class() -> Any:
    from jax.extend.sharding import get_hlo_sharding_from_serialized_proto

    return type(get_hlo_sharding_from_serialized_proto(b""))  # the class has no public name


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    _serve(asked["texts"], asked["extra"])
