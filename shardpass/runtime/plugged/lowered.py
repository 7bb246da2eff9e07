"""What is done with a call that JAX is about to lower while a block lasts."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import Any, Final

from shardpass.compat import jit_lowering
from shardpass.compat.tracebacks import leave_out
from shardpass.diagnostics import ShardingError
from shardpass.runtime.jitted.axis_types import with_auto_axes
from shardpass.runtime.jitted.telling import warn
from shardpass.runtime.lowering import hook
from shardpass.runtime.lowering.calls import Call
from shardpass.runtime.plugged.adapters import names_for, written_by_user
from shardpass.runtime.plugged.exempt import LeftAlone, Why, exemption
from shardpass.runtime.plugged.local import refuse_local
from shardpass.runtime.plugged.memo import Memo
from shardpass.runtime.plugged.report import Record
from shardpass.runtime.plugged.rewriting import arrivals, brought, opened, with_plan
from shardpass.runtime.plugged.wanted import Wanted

_lock: Final = threading.Lock()
_memo: Final = Memo()
_records: Final[weakref.WeakKeyDictionary[Wanted, list[Record]]] = weakref.WeakKeyDictionary()


# JAX takes its own frames out of tracebacks; ours stand between them, and say as little.
leave_out(str(Path(__file__).parent))


def install(wanted: Wanted, record: Record) -> None:
    """Put the hook in its place, and keep ``record`` of what it does under ``wanted``.

    Raises:
      ShardingError: ``unknown-jax``.
    """
    hook.install()
    with _lock:
        _records.setdefault(wanted, []).append(record)


def uninstall(wanted: Wanted, record: Record) -> None:
    """Stop keeping ``record``, and take the hook away when nobody else needs it."""
    with _lock:
        _records[wanted].remove(record)
    hook.uninstall()


@hook.handles(Wanted)
def _lowered(original: jit_lowering.Lowering, call: Call, wanted: Wanted) -> Any:
    call = written_by_user(call)
    records = _records.get(wanted, ())
    try:
        outcome = exemption(call, wanted) or _planned(original, call, wanted)
    except ShardingError as error:
        error.add_note(f"plugin mode was compiling {call.place or call.name}")
        for record in records:
            record.failed(call, error)
        raise
    if not isinstance(outcome, LeftAlone):
        return outcome
    news = [record.leave_alone(outcome) for record in records]
    program = original(**call.parameters)  # Which may refuse it, in words that come first.
    if any(news) and outcome.is_worth_a_warning:
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
        found = with_plan(program, call, policy, arrive, names_for(call).by_raw)
        if policy.is_built_in and found.says_nothing and not any(arrive):
            for record in _records.get(wanted, ()):
                record.looked_at(found.diagnostics)
            found = LeftAlone(call.name, call.place, Why.NOTHING)
        else:
            found = _memo.shared(found)
        _memo.keep(program, (wanted, arrive), found)
    if isinstance(found, LeftAlone):
        return found
    refuse_local(call, found)
    told = (wanted, arrive, alone := frozenset(brought(call, program)))
    if _memo.find(program, told) is None:
        _memo.keep(program, told, found)
        names = names_for(call)
        for record in _records.get(wanted, ()):
            for diagnostic in record.compiled(call, found, names, alone):
                warn(str(diagnostic))
    return found.program


def _unplannable(program: Any) -> Why | None:
    compiling = jit_lowering.compile_arguments(program)
    if compiling["mut"] is not None:
        return Why.STATE
    state = compiling["shape_poly_state"]
    if state is not None and state.uses_dim_vars:
        return Why.DYNAMIC
    return None


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
