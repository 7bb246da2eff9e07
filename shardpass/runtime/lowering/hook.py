"""The hook: what JAX calls in the place of its own lowering, while somebody wants it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import jax

from shardpass.compat import jit_lowering
from shardpass.compat.tracebacks import leave_out
from shardpass.diagnostics import ShardingError
from shardpass.runtime.lowering.calls import Call

#: Lowers a call, with JAX's own lowering (of the same parameters) and what the user wants.
Handler = Callable[[jit_lowering.Lowering, Call, Any], Any]
_H = TypeVar("_H", bound=Handler)

#: What is wanted in this thread, or everywhere; ``None`` for nothing. JAX takes it into the keys of
#: its caches.
current: Final = jax.make_user_context(None)

_handlers: Final[dict[type, Handler]] = {}
_lock: Final = threading.RLock()
_original: jit_lowering.Lowering | None = None
_count = 0

# JAX takes its own frames out of tracebacks; ours stand between them, and say as little.
leave_out(str(Path(__file__).parent))


def check_jax() -> None:
    """Refuse a JAX whose lowering is not as we know it.

    Raises:
      ShardingError: ``unknown-jax``.
    """
    found = jit_lowering.parameters()
    if found == jit_lowering.PARAMETERS:
        made = jit_lowering.program_parameters()
        if made == jit_lowering.PROGRAM_PARAMETERS:
            return
        what = f"makes programs of {_said(made)}"
    else:
        what = f"lowers with {_said(found)}"
    raise ShardingError(
        "unknown-jax",
        f"plugin mode does not know how JAX {jax.__version__} lowers functions: it {what}",
        help="decorate the functions with shardpass.jit, which needs nothing of JAX's inside, or "
        "use a version of JAX that shardpass is tested with (0.10.2 to 0.12.0.1)",
    )


def _said(names: tuple[str, ...] | None) -> str:
    return "nothing of a known name" if names is None else ", ".join(names)


def handles(kind: type) -> Callable[[_H], _H]:
    """Have a function lower what is called while a value of ``kind`` is wanted."""

    def register(handler: _H) -> _H:
        _handlers[kind] = handler
        return handler

    return register


def install() -> None:
    """Put the hook in its place, if it is not there; once for each that needs it.

    Raises:
      ShardingError: ``unknown-jax``.
    """
    global _original, _count
    with _lock:
        if _count == 0:
            check_jax()
            _original = jit_lowering.lowering()
            jit_lowering.set_lowering(_hooked)
        _count += 1


def uninstall() -> None:
    """Take the hook away, when nobody else needs it."""
    global _count
    with _lock:
        _count -= 1
        if _count == 0:
            assert _original is not None
            jit_lowering.set_lowering(_original)


def _hooked(*args: Any, **kwargs: Any) -> Any:
    original = _original
    assert original is not None
    wanted = current.value
    if wanted is None:
        return original(*args, **kwargs)
    return _handlers[type(wanted)](original, Call.of(args, kwargs), wanted)
