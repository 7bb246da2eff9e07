"""A module, finished for XLA, compiled for a set of devices, and ready to be handed arrays."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import jax
import jax.extend.backend
import jax.extend.sharding
import numpy as np
from jax.extend.mlir import ir

from shardpass.canon import HloSharding
from shardpass.compat.xla_client import DeviceList, initialize_lapack
from shardpass.diagnostics import ShardingError
from shardpass.mlir import (
    MHLO_SHARDING,
    SDY_SHARDING,
    EntryValue,
    Module,
    load,
    operations,
    present_as_main,
    result_attributes,
    set_num_partitions,
)
from shardpass.passes import run_pipeline
from shardpass.passes.prepare_for_xla import PrepareForXla
from shardpass.runtime.dataflow import target
from shardpass.runtime.devices import Device, devices_for
from shardpass.runtime.placement import Layout
from shardpass.runtime.preflight import (
    Partitioner,
    PartitionerChoice,
    check_before_compiling,
    choose_partitioner,
    device_count,
)
from shardpass.runtime.processes.exchange import gathered
from shardpass.runtime.processes.meeting import meet, processes_of
from shardpass.runtime.xla_text import without_traces

_MOST_NOTES: Final = 6


@dataclass(frozen=True)
class Executable:
    """A compiled module and where it wants its arguments and puts its results.

    Attributes:
      module: what was compiled, the finishing step included; not the caller's object.
      devices: in the order in which shardings number them.
      partitioner: which of XLA's two partitioners cut it up; ``None`` on one device.
      arguments: the entry function's arguments.
      results: its results.
      argument_layouts: where each argument goes.
      result_layouts: where each result comes from.
    """

    module: Module
    devices: tuple[Device, ...]
    partitioner: Partitioner | None
    arguments: tuple[EntryValue, ...]
    results: tuple[EntryValue, ...]
    argument_layouts: tuple[Layout, ...]
    result_layouts: tuple[Layout, ...]
    _loaded: Any
    _argument_shardings: tuple[jax.sharding.Sharding, ...]

    @cached_property
    def hlo_text(self) -> str:
        """XLA's optimized program for one device."""
        return "\n".join(each.to_string() for each in self._loaded.hlo_modules())

    @property
    def memory_stats(self) -> Any:
        """XLA's figures for one device, as :meth:`jax.stages.Compiled.memory_analysis` gives."""
        return self._loaded.get_compiled_memory_stats()

    def place(self, index: int, array: np.ndarray) -> jax.Array:
        """Argument ``index`` on the devices, as this executable wants it."""
        return self.place_blocks(index, self.argument_layouts[index].cut(array))

    @cached_property
    def local(self) -> tuple[int, ...]:
        """Those of the devices, by their number here, that this process holds."""
        process = self.devices[0].client.process_index()
        return tuple(n for n, device in enumerate(self.devices) if device.process_index == process)

    @property
    def is_shared(self) -> bool:
        """Whether some of the devices are those of other processes."""
        return len(self.local) < len(self.devices)

    def place_blocks(self, index: int, blocks: Sequence[np.ndarray]) -> jax.Array:
        """Argument ``index`` from the block of each device, those of other processes included."""
        with jax.enable_x64(True):
            parts = jax.device_put(
                [blocks[number] for number in self.local],
                [self.devices[number] for number in self.local],
            )
            return jax.make_array_from_single_device_arrays(
                self.argument_layouts[index].padded_shape, self._argument_shardings[index], parts
            )

    def execute(self, arguments: Sequence[jax.Array]) -> list[list[jax.Array]]:
        """Run once and wait for the end.

        Waiting is owed to jaxlib 0.10.2: two programs with collectives in flight on CPU devices
        starve each other until XLA aborts the process.

        Args:
          arguments: one array for each argument, from :meth:`place`. Donated ones are gone after.

        Returns:
          For each result, the block of each device of this process; see :meth:`blocks`.

        Raises:
          ShardingError: ``run-failed``, with what XLA said.
        """
        if self.is_shared:
            meet(self.devices, "run")
        try:
            outcome = self._loaded.execute_sharded(list(arguments))
            return jax.block_until_ready(outcome.disassemble_into_single_device_arrays())
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            raise _from_xla(error, "run-failed", f"running {self.module.name} failed") from error

    def blocks(
        self, index: int, parts: Sequence[jax.Array], *, copies: bool = True
    ) -> list[np.ndarray]:
        """The block of each device of result ``index``, from what :meth:`execute` gave for it.

        :attr:`result_layouts` say what they are. All processes that hold devices have to ask.

        Args:
          index: which result.
          parts: its blocks in this process.
          copies: whether each device's own is wanted, also where several hold the same; else one
            process's stands for all.
        """
        if not self.is_shared:
            return [np.asarray(part) for part in parts]
        layout = self.result_layouts[index]
        count = len(self.devices)
        held = {n: np.asarray(part) for n, part in zip(self.local, parts, strict=True)}
        found = gathered(self.devices, held, range(count) if copies else layout.owners)
        if not copies:
            found |= {device: found[owner] for device, owner in layout.copies}
        return [found[number] for number in range(count)]


def compile_module(
    module: Any,
    *,
    devices: int | Sequence[Device] | None = None,
    partitioner: PartitionerChoice = "auto",
) -> Executable:
    """Compile a module through XLA's SPMD partitioner.

    Args:
      module: whatever :func:`shardpass.load` takes. It is not changed: the finishing step
        (:class:`~shardpass.passes.prepare_for_xla.PrepareForXla`) works on a clone.
      devices: the devices, or how many of them; by default as many as the module is sharded for.
      partitioner: ``"shardy"`` or ``"gspmd"``; ``"auto"`` takes the one that the module's notation
        needs.

    Raises:
      ShardingError: ``partitioner`` for a notation that the partitioner does not read, or two of
        them; ``not-enough-devices``; ``device-count``, ``dynamic-shape`` or ``not-supported`` for
        what XLA would ignore or die of; ``compile-failed`` for what it refuses; on devices of
        several processes, what :func:`~shardpass.runtime.processes.meeting.meet` raises.
    """
    loaded = load(module)
    chosen = choose_partitioner(loaded, partitioner)
    used = devices_for(device_count(loaded) if devices is None else devices)
    check_before_compiling(loaded, len(used))
    finished = run_pipeline(loaded, [PrepareForXla()]).module
    set_num_partitions(finished.root, len(used))
    present_as_main(finished.root)
    if _calls_lapack(finished):
        initialize_lapack()
    if len(processes_of(used)) > 1:
        # A process with another program would be waited for without end.
        text = f"{chosen}\n{finished.text(debug_info=False)}"
        meet(used, "compile", hashlib.sha256(text.encode()).hexdigest())
    raw = _compile(finished, used, chosen)
    arguments, results = tuple(finished.arguments), tuple(finished.results)
    argument_shardings, argument_layouts = _layouts(raw.get_parameter_shardings(), arguments, used)
    _, result_layouts = _layouts(raw.get_output_shardings(), results, used)
    return Executable(
        finished,
        used,
        chosen if len(used) > 1 else None,
        arguments,
        results,
        argument_layouts,
        result_layouts,
        raw,
        argument_shardings,
    )


def _calls_lapack(module: Module) -> bool:
    """Whether the program calls LAPACK, as JAX writes that for CPUs."""
    return any(
        op.operation.name == "stablehlo.custom_call" and target(op).startswith("lapack_")
        for op in operations(module.root)
    )


def _compile(module: Module, devices: tuple[Device, ...], partitioner: Partitioner) -> Any:
    count = len(devices)
    options = jax.extend.backend.get_compile_options(
        num_replicas=1,
        num_partitions=count,
        # Else XLA numbers the client's devices from the front, whichever are asked for.
        device_assignment=np.array([[device.id for device in devices]]),
    )
    build = options.executable_build_options
    build.use_spmd_partitioning = count > 1
    build.use_shardy_partitioner = partitioner == "shardy"
    # Where nobody said how a result lies, let it lie as it falls. GSPMD gathers it otherwise.
    build.allow_spmd_sharding_propagation_to_output = [
        SDY_SHARDING not in entries and MHLO_SHARDING not in entries
        for entries in result_attributes(module.main)
    ]
    try:
        return devices[0].client.compile_and_load(module.ir, DeviceList(devices), options)
    except (jax.errors.JaxRuntimeError, ir.MLIRError, ValueError) as error:
        raise _from_xla(error, "compile-failed", f"XLA refused {module.name}") from error


def _layouts(
    found: Sequence[Any] | None, values: Sequence[EntryValue], devices: tuple[Device, ...]
) -> tuple[tuple[jax.sharding.Sharding, ...], tuple[Layout, ...]]:
    """The shardings that XLA settled on, as JAX's objects and as ours."""
    if not values:
        return (), ()  # XLA has a sharding even for an empty tuple.
    if len(devices) == 1 or found is None:
        single = jax.sharding.SingleDeviceSharding(devices[0])
        return (single,) * len(values), tuple(
            Layout(HloSharding.replicated(), value.shape, len(devices)) for value in values
        )
    objects: list[jax.sharding.Sharding] = []
    layouts: list[Layout] = []
    for proto, value in zip(found, values, strict=True):
        hlo = jax.extend.sharding.get_hlo_sharding_from_serialized_proto(proto.SerializeToString())
        objects.append(jax.extend.sharding.GSPMDSharding(devices, hlo))
        sharding = HloSharding.parse(str(hlo)).to_v2().without_metadata()
        layouts.append(Layout(sharding, value.shape, len(devices)))
    return tuple(objects), tuple(layouts)


def _from_xla(error: Exception, slug: str, what: str) -> ShardingError:
    """XLA's message without its stack, the gist in front."""
    lines = [line.strip() for line in without_traces(str(error)).splitlines()]
    told = [line for line in lines if line and not _NOISE.search(line)]
    gist = told[0] if told else type(error).__name__
    return ShardingError(
        slug, f"{what}: {_short(gist)}", notes=[_short(line) for line in told[1:_MOST_NOTES]]
    )


#: Lines of an XLA message that speak of XLA's own source, or print a whole function.
_NOISE: Final = re.compile(
    r"see current operation|^external/|Source Location Trace|^===|^\"?func\."
)


def _short(line: str, most: int = 400) -> str:
    return line if len(line) <= most else f"{line[:most]}..."
