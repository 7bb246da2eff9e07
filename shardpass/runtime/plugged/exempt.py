"""What plugin mode leaves to JAX as it is, and why.

A plan is for what users wrote under ``jax.jit``. Functions of JAX's own that run eagerly have
arguments called ``x`` and ``key``, which no rule means; a function that is bound to other devices,
or to another order of them, cannot be moved without changing what its author asked for; and what
JAX would not lower for several devices is left to JAX's own words.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding

from shardpass.compat import jit_lowering
from shardpass.compat.lowering import device_assignment, uses_shardy
from shardpass.diagnostics import Diagnostic, Severity
from shardpass.runtime.lowering.calls import Call
from shardpass.runtime.plugged.wanted import Wanted

_MOST_SHOWN: Final = 8


class Why(enum.Enum):
    """Why a function is left alone; the value is for people."""

    ASKED = "asked for by name"
    JAX = "JAX's own, or run eagerly"
    PIECE = "a piece of a derivative taken outside of jax.jit"
    SHARDPASS_JIT = "a function of shardpass.jit, with a plan of its own"
    PLATFORMS = "lowered for several platforms at once"
    GSPMD = "lowered for GSPMD: jax_use_shardy_partitioner is off"
    DEVICES = "bound to other devices, or to another order of them"
    MEMORY = "an argument in another memory than the devices' own"
    DYNAMIC = "dimensions without a static size"
    STATE = "mutable references among its arguments"
    NOTHING = "nothing in it to plan: no rule speaks of it, and nothing of it lies on the mesh"
    REFUSED = "JAX refuses it on the mesh"


@dataclass(frozen=True)
class LeftAlone:
    """A function that was lowered as JAX would.

    Attributes:
      name: the function's.
      place: where it is written.
      why: the kind of reason.
      detail: the reason with its particulars; empty where there are none.
    """

    name: str
    place: str
    why: Why
    detail: str = ""

    @property
    def is_worth_a_warning(self) -> bool:
        """Whether the user may have expected a plan."""
        expected = (Why.PIECE, Why.DEVICES, Why.MEMORY, Why.REFUSED, Why.DYNAMIC, Why.STATE)
        return self.why in expected

    def warning(self) -> str:
        """What to say of it."""
        detail = f" ({self.detail})" if self.detail else ""
        help = f'leave_alone=["{self.name}"] says that this is as wanted'
        if self.why is Why.PIECE:
            help = f"take the gradient under jax.jit: jax.jit(jax.grad(...)); {help}"
        return str(
            Diagnostic(
                Severity.WARNING,
                "left-alone",
                f"{self.place or self.name} is compiled without a plan: {self.why.value}{detail}",
                help=help,
            )
        )


def exemption(call: Call, wanted: Wanted) -> LeftAlone | None:
    """Why ``call`` is to be left alone, as far as that can be told before lowering."""
    for why, detail in _reasons(call, wanted):
        return LeftAlone(call.name, call.place, why, detail)
    return None


def _reasons(call: Call, wanted: Wanted) -> Iterator[tuple[Why, str]]:
    is_asked_for = wanted.leaves_alone(call)
    if call.is_jaxs_own:
        yield Why.JAX, ""
    if call.is_of_shardpass_jit:
        wanted.planned_elsewhere.add(call.place)
    if call.place in wanted.planned_elsewhere and (call.is_of_shardpass_jit or call.is_piece):
        yield Why.SHARDPASS_JIT, ""
    if is_asked_for:
        yield Why.ASKED, ""
    if call.is_piece:
        yield Why.PIECE, ""
    platforms = call.parameters["lowering_platforms"]
    if platforms is not None and len(platforms) > 1:
        yield Why.PLATFORMS, ", ".join(platforms)
    if not uses_shardy():
        yield Why.GSPMD, ""
    order = tuple(np.ravel(wanted.mesh.devices))
    for what, sharding in _bindings(call):
        if fault := _elsewhere(sharding, order):
            yield Why.DEVICES, f"{what} {fault}"
    if fault := _on_different_devices(call):
        yield Why.DEVICES, fault
    context = call.parameters["ctx_mesh"]
    is_set = isinstance(context, jax.sharding.Mesh) and not context.empty
    if is_set and (fault := _differs(tuple(np.ravel(context.devices)), order)):
        yield Why.DEVICES, f"the mesh around it (jax.set_mesh, with mesh) {fault}"
    for place, argument in enumerate(call.arguments):
        memory = _own_memory(argument)
        if memory and not call.explicit(place):
            yield Why.MEMORY, f"{_called(call, place)} lies in {memory}"


def _bindings(call: Call) -> Iterator[tuple[str, Any]]:
    """What binds the function to devices: shardings that the user gives, and placed arguments."""
    for place, sharding in enumerate(call.in_shardings):
        if call.explicit(place):
            yield f"in_shardings for {_called(call, place)}", sharding
    for place, sharding in enumerate(call.out_shardings):
        if not jit_lowering.is_open(sharding):
            yield f"out_shardings for result {place}", sharding
    for place, argument in enumerate(call.arguments):
        if call.explicit(place) or not is_bound(argument):
            continue
        yield _called(call, place), argument.sharding


def _on_different_devices(call: Call) -> str:
    """Which arguments are bound to single devices that are not the same: JAX takes no such two."""
    first: tuple[int, Any] | None = None
    for place in on_one_device(call):
        (device,) = call.arguments[place].sharding.device_set
        if first is None:
            first = place, device
        elif device != first[1]:
            return (
                f"{_called(call, first[0])} is on device {first[1].id}, and "
                f"{_called(call, place)} on device {device.id}"
            )
    return ""


def on_one_device(call: Call) -> list[int]:
    """The places of arguments that are bound to a single device, by nobody's word but their own."""
    return [
        place
        for place, argument in enumerate(call.arguments)
        if not call.explicit(place) and is_bound(argument) and is_on_one_device(argument.sharding)
    ]


def is_bound(argument: Any) -> bool:
    """Whether an argument lies on devices that it may not be moved from without a word."""
    sharding = argument.sharding
    if sharding is None or not argument.committed:
        return False
    return not (isinstance(sharding, NamedSharding) and sharding.mesh.empty)


def is_on_one_device(sharding: jax.sharding.Sharding) -> bool:
    """Whether it is for a single device, and which one is known."""
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh):
        return False
    return sharding.num_devices == 1


def _elsewhere(sharding: Any, order: Sequence[Any]) -> str:
    """What keeps something that lies so from a mesh of devices in that order."""
    if not isinstance(sharding, jax.sharding.Sharding):
        return f"is {sharding!r}, which JAX is to choose"
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh):
        if sharding.mesh.size == len(order):
            return ""
        return f"is for {sharding.mesh.size} devices, and the mesh has {len(order)}"
    devices = device_assignment(sharding)
    if len(devices) == 1 and devices[0] in order:
        return ""
    return _differs(devices, order)


def _differs(devices: tuple[Any, ...], order: Sequence[Any]) -> str:
    if devices == tuple(order):
        return ""
    if set(devices) == set(order):
        return f"has the mesh's devices in the order {_ids(devices)}; the mesh has {_ids(order)}"
    return f"is for {_listed(devices)}; the mesh has {_listed(order)}"


def _ids(devices: Sequence[Any]) -> str:
    more = ", ..." if len(devices) > _MOST_SHOWN else ""
    return f"[{', '.join(str(device.id) for device in devices[:_MOST_SHOWN])}{more}]"


def _listed(devices: Sequence[Any]) -> str:
    return f"{devices[0].platform} {_ids(devices)}"


def _own_memory(argument: Any) -> str | None:
    """The memory that an argument lies in, where it is not the default one of its devices."""
    sharding = argument.sharding
    if sharding is None or sharding.memory_kind is None:
        return None
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh):
        return None
    device = next(iter(sharding.device_set))
    default = device.default_memory().kind
    return None if sharding.memory_kind == default else sharding.memory_kind


def _called(call: Call, place: int) -> str:
    names = jit_lowering.argument_names(call.jaxpr)
    count = len(call.arguments)
    if names is None or len(names) != count:
        return f"argument {place}"
    return f'argument {place} ("{names[place]}")'
