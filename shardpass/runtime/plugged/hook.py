"""The hook: what JAX calls while a block lasts, in the place of its own lowering."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import Any, Final

import jax

from shardpass.compat import jit_lowering
from shardpass.compat.tracebacks import leave_out
from shardpass.diagnostics import ShardingError
from shardpass.passes.annotate import Annotate
from shardpass.passes.propagate import Propagate
from shardpass.runtime.jitted.axis_types import with_auto_axes
from shardpass.runtime.jitted.policy import Policy
from shardpass.runtime.jitted.telling import warn
from shardpass.runtime.plugged.adapters import names_for
from shardpass.runtime.plugged.calls import Call
from shardpass.runtime.plugged.exempt import LeftAlone, Why, exemption
from shardpass.runtime.plugged.memo import Memo
from shardpass.runtime.plugged.report import Record
from shardpass.runtime.plugged.rewriting import arrivals, opened, with_plan
from shardpass.runtime.plugged.wanted import Wanted, current

_lock: Final = threading.RLock()
_original: jit_lowering.Lowering | None = None
_count = 0
_memo: Final = Memo()
_records: Final[weakref.WeakKeyDictionary[Wanted, list[Record]]] = weakref.WeakKeyDictionary()


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


def install(wanted: Wanted, record: Record) -> None:
    """Put the hook in its place, if it is not there, and keep ``record`` of what it does.

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
        _records.setdefault(wanted, []).append(record)


def uninstall(wanted: Wanted, record: Record) -> None:
    """Stop keeping ``record``, and take the hook away when nobody else needs it."""
    global _count
    with _lock:
        _records[wanted].remove(record)
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
    call = Call.of(args, kwargs)
    try:
        outcome = exemption(call, wanted) or _planned(original, call, wanted)
    except ShardingError as error:
        error.add_note(f"plugin mode was compiling {call.place or call.name}")
        raise
    if not isinstance(outcome, LeftAlone):
        return outcome
    program = original(*args, **kwargs)
    for record in _records.get(wanted, ()):
        if record.leave_alone(outcome) and outcome.is_worth_a_warning:
            warn(outcome.warning())
    return program


def _planned(original: jit_lowering.Lowering, call: Call, wanted: Wanted) -> Any:
    """The program with a plan, or why there is none."""
    policy = wanted.policy
    context = call.parameters["ctx_mesh"]
    mesh = with_auto_axes(policy.mesh) if context.empty else context
    parameters = {**call.parameters, "args": opened(call), "ctx_mesh": mesh}
    try:
        program = original(**parameters)
    except Exception as error:  # JAX says so again, or lowers it in its own way.
        return LeftAlone(call.name, call.place, Why.REFUSED, _first_line(error))
    if reason := _unplannable(program):
        return LeftAlone(call.name, call.place, reason)
    arrive = arrivals(call, program)
    found = _memo.find(program, (wanted, arrive))
    if found is None:
        names = names_for(call)
        found = with_plan(program, call, policy, arrive, names.by_raw)
        if only_lays_out(policy) and found.says_nothing and not any(arrive):
            for record in _records.get(wanted, ()):
                record.looked_at(found.diagnostics)
            found = LeftAlone(call.name, call.place, Why.NOTHING)
        else:
            found = _memo.shared(found)
            for record in _records.get(wanted, ()):
                for told in record.compiled(call, found, names):
                    warn(str(told))
        _memo.keep(program, (wanted, arrive), found)
    return found if isinstance(found, LeftAlone) else found.program


def _unplannable(program: Any) -> Why | None:
    compiling = jit_lowering.compile_arguments(program)
    if compiling["mut"] is not None:
        return Why.STATE
    state = compiling["shape_poly_state"]
    if state is not None and state.uses_dim_vars:
        return Why.DYNAMIC
    return None


def only_lays_out(policy: Policy) -> bool:
    """Whether the pipeline does nothing but apply rules and propagate."""
    return all(isinstance(step, (Annotate, Propagate)) for step in policy.pipeline)


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
