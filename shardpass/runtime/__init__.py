"""Compile, run and prove modules on real devices, or on eight made of one CPU.

* :func:`compile_module` finishes a module for XLA, picks the partitioner that its notation needs
  and compiles it; an :class:`Executable` knows where arguments go and results come from.
* :func:`run` runs a module once, with the user's arrays or made-up ones.
* :func:`check` runs it sharded and unsharded and compares every result.
* :func:`in_child` does any of these in a child process, so that XLA ending the process is an error
  message and not the end.
* :func:`request_cpu_devices` makes one CPU look like many devices, before JAX looks.

* :func:`jit` is ``jax.jit`` with the passes inside; see :mod:`shardpass.runtime.jitted`.
* :func:`plugin` has plain ``jax.jit`` run them; see :mod:`shardpass.runtime.plugged`.

Importing this package imports neither jax nor XLA; its names are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "CheckResult": "result",
    "Executable": "compile",
    "InputSource": "inputs",
    "ResultRow": "result",
    "RunResult": "running",
    "RunRow": "running",
    "check": "checking",
    "compile_module": "compile",
    "constrain": "jitted",
    "devices_for": "devices",
    "export": "jitted",
    "in_child": "child",
    "input_source": "inputs",
    "jit": "jitted",
    "pjit": "jitted",
    "plugin": "plugged",
    "request_cpu_devices": "devices",
    "run": "running",
}

if TYPE_CHECKING:
    from shardpass.runtime.checking import check
    from shardpass.runtime.child import in_child
    from shardpass.runtime.compile import Executable, compile_module
    from shardpass.runtime.devices import devices_for, request_cpu_devices
    from shardpass.runtime.inputs import InputSource, input_source
    from shardpass.runtime.jitted import constrain, export, jit, pjit
    from shardpass.runtime.plugged import plugin
    from shardpass.runtime.result import CheckResult, ResultRow
    from shardpass.runtime.running import RunResult, RunRow, run

__all__ = [
    "CheckResult",
    "Executable",
    "InputSource",
    "ResultRow",
    "RunResult",
    "RunRow",
    "check",
    "compile_module",
    "constrain",
    "devices_for",
    "export",
    "in_child",
    "input_source",
    "jit",
    "pjit",
    "plugin",
    "request_cpu_devices",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
