"""What each process has, in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from shardpass.runtime.devices import Device
from shardpass.runtime.processes.meeting import processes_of

#: Words of four bytes that travel at once. A power of two, as all pieces are, so that a program of
#: few shapes carries them.
_MOST_WORDS: Final = 2**24
_LEAST_WORDS: Final = 2**8


def gathered(
    devices: Sequence[Device], held: dict[int, np.ndarray], wanted: Sequence[int]
) -> dict[int, np.ndarray]:
    """The blocks of ``wanted`` devices, those of other processes included.

    Args:
      devices: those of a run; others are numbers among them.
      held: the block of each device of this process, all of one shape and type.
      wanted: the devices whose blocks to give; the same in every process, all of which call this.
    """
    processes = processes_of(devices)
    sent = {
        process: [number for number in wanted if devices[number].process_index == process]
        for process in processes
    }
    like = next(iter(held.values()))
    most = max(len(numbers) for numbers in sent.values())
    mine = np.zeros((most, like.nbytes), np.uint8)
    for row, number in enumerate(sent[jax.process_index()]):
        mine[row] = np.ascontiguousarray(held[number]).reshape(-1).view(np.uint8)
    rows = _exchanged(devices, mine.reshape(-1)).reshape(len(processes), most, like.nbytes)
    return {
        number: rows[place, row].view(like.dtype).reshape(like.shape)
        for place, process in enumerate(processes)
        for row, number in enumerate(sent[process])
    }


def _exchanged(devices: Sequence[Device], mine: np.ndarray) -> np.ndarray:
    """A row of as many bytes from each process."""
    padding = -mine.size % 4
    words = np.pad(mine, (0, padding)).view(np.uint32)
    pieces = [
        _exchange(devices, words[start : start + _MOST_WORDS])
        for start in range(0, words.size, _MOST_WORDS)
    ]
    if not pieces:
        return np.zeros((len(processes_of(devices)), 0), np.uint8)
    whole = np.ascontiguousarray(np.concatenate(pieces, axis=1)).view(np.uint8)
    return whole[:, : mine.size]


def _exchange(devices: Sequence[Device], words: np.ndarray) -> np.ndarray:
    size = max(_LEAST_WORDS, 1 << (words.size - 1).bit_length())
    row = np.pad(words, (0, size - words.size))[np.newaxis]
    firsts: dict[int, Device] = {}
    for device in devices:
        firsts.setdefault(device.process_index, device)
    leads = [firsts[process] for process in processes_of(devices)]
    mesh = Mesh(np.array(leads), ("process",), axis_types=(AxisType.Auto,))
    own = jax.device_put(row, firsts[jax.process_index()])
    rows = jax.make_array_from_single_device_arrays(
        (len(leads), size), NamedSharding(mesh, PartitionSpec("process")), [own]
    )
    everywhere = jax.jit(_itself, out_shardings=NamedSharding(mesh, PartitionSpec()))(rows)
    return np.asarray(everywhere.addressable_data(0))[:, : words.size]


def _itself(rows: jax.Array) -> jax.Array:
    return rows
