"""How often JAX does what takes long."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import jax.monitoring


@contextlib.contextmanager
def events() -> Iterator[collections.Counter[str]]:
    """How often JAX traces, lowers and compiles meanwhile."""
    counted: collections.Counter[str] = collections.Counter()
    names = {
        "/jax/core/compile/jaxpr_trace_duration": "traced",
        "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowered",
        "/jax/core/compile/backend_compile_duration": "compiled",
    }

    def listen(event: str, _duration: float, **_: Any) -> None:
        if event in names:
            counted[names[event]] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield counted
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
