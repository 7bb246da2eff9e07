"""A function in several processes that know each other through ``jax.distributed``.

Each process is a new Python with its share of virtual CPU devices. One that dies or raises ends the
others, and is named by the error; none is left behind.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax

from shardpass.runtime.processes.group import Group
from shardpass.runtime.processes.joining import join, leave
from shardpass.runtime.processes.supervisor import supervise

#: Seconds that a process may be silent, on a machine with more to do.
_TIMEOUT = 60.0


def launch(task: Callable[..., Any], *arguments: Any, count: int, devices: int = 8) -> list[Any]:
    """What ``task(*arguments)`` gives in each of ``count`` processes, which share the devices out.

    ``task`` is a function of a module, by its own name there.
    """
    group = Group.of(count, None, None, _TIMEOUT)
    named = (task.__module__, task.__qualname__, arguments, group.share(devices))
    return supervise(_do, named, group, lambda step: None)


def _do(
    module: str,
    name: str,
    arguments: tuple[Any, ...],
    share: int,
    group: Group,
    number: int,
    progress: Callable[[str], None],
) -> Any:
    devices = join(group, number, share)
    progress(name)
    assert (jax.process_count(), jax.local_device_count()) == (group.count, share)
    result = getattr(importlib.import_module(module), name)(*arguments)
    progress("leave")
    leave(devices)
    return result
