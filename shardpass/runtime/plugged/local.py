"""Arguments that one process has for itself, where the mesh has devices of several.

What an array on a device of this process is, the whole or this process's part, nobody can tell: to
plain ``jax.jit`` it is neither, as each process computes on its own. So where a plan cuts it, it is
refused. One that was put nowhere is taken to be the same in every process, as numpy's are.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import NamedSharding

from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.runtime.jitted.policy import spec_text
from shardpass.runtime.lowering.calls import Call
from shardpass.runtime.plugged.exempt import on_one_device
from shardpass.runtime.plugged.rewriting import Planned, kept_places


def refuse_local(call: Call, planned: Planned) -> None:
    """Refuse arguments on a device of one process that the plan cuts over those of several.

    Raises:
      ShardingError: ``process-local``, with all of them.
    """
    alone = on_one_device(call)
    if not alone or jax.process_count() == 1:
        return
    kept, constants = kept_places(planned.program)
    found = [
        _refused(call, place, planned, index)
        for index, place in enumerate(kept, constants)
        if place in alone and _is_spread(planned.places[index], call.arguments[place].aval)
    ]
    if found:
        raise ShardingError.of(found)


def _is_spread(target: jax.sharding.Sharding | None, aval: Any) -> bool:
    """Whether processes hold different parts of what lies so, as far as that is known yet."""
    if target is None:
        return bool(aval.shape)
    return not (target.is_fully_addressable or target.is_fully_replicated)


def _refused(call: Call, place: int, planned: Planned, index: int) -> Diagnostic:
    target = planned.places[index]
    wanted = "where XLA wants it"
    if isinstance(target, NamedSharding):
        mesh = ", ".join(f"{name}={size}" for name, size in target.mesh.shape.items())
        wanted = f"as {spec_text(target.spec)} on mesh {mesh}"
    return Diagnostic(
        Severity.ERROR,
        "process-local",
        f'argument {place} ("{planned.arguments[index].path}") lies on devices of process '
        f"{jax.process_index()} alone, as {call.arguments[place].sharding}, and the plan has it on "
        f"those of all {jax.process_count()} processes, {wanted}",
        path=planned.arguments[index].path,
        help="make a global array: jax.make_array_from_process_local_data(sharding, data) of each "
        "process's part; or hand over numpy's array of the whole, the same in every process; or "
        f'leave_alone=["{call.name}"], where each process is to compute on its own',
    )
