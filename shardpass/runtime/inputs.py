"""Where a run's arguments come from: the user's arrays, or made-up ones.

A source gives one argument at a time, as a numpy array, whenever asked, and the same one each time:
a model's weights are never all in memory beside their copies on the devices.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from shardpass.diagnostics import ShardingError, Sink, did_you_mean
from shardpass.mlir import EntryValue, Module
from shardpass.runtime.described import ArrayDescription
from shardpass.runtime.element_types import dtype_of
from shardpass.runtime.npz import NpzFile
from shardpass.runtime.seeded import SeededInputs


@runtime_checkable
class InputSource(Protocol):
    """Gives the arguments of a run, one by one."""

    def array(self, index: int) -> np.ndarray:
        """Argument ``index``, in its global shape and its element type."""
        ...


#: What users hand over: a path of an ``.npz``, arrays by name, arrays in order, or nothing.
Inputs = str | os.PathLike[str] | Mapping[str, Any] | Sequence[Any] | InputSource | None


def input_source(module: Module, inputs: Inputs = None, *, seed: int = 0) -> InputSource:
    """The source for ``inputs``, checked against the module's arguments.

    Args:
      module: whose arguments are needed.
      inputs: the path of an ``.npz``; a mapping from an argument's dotted path (``params.w``), name
        as JAX spelt it (``params['w']``) or position (``arg3``, ``3``, numpy's own ``arr_3``) to
        its array; a sequence in order; or ``None`` for made-up values. Typed PRNG keys are their
        raw bits, as ``jax.random.key_data`` gives them.
      seed: what made-up values are drawn from.

    Raises:
      ShardingError: ``bad-inputs``, one diagnostic for each argument that is missing, unknown, or
        of another shape or element type, or given twice; ``unreadable`` for a file that is no
        ``.npz``; ``usage`` for a seed that is none.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ShardingError("usage", f"seed = {seed!r}", help="a seed is a number from 0 on")
    if inputs is None:
        return SeededInputs.of(module, seed)
    if isinstance(inputs, (str, os.PathLike)):
        file = NpzFile(inputs)
        return _by_name(module, file.members, lambda name: file.read(name), os.fspath(inputs))
    if isinstance(inputs, Mapping):
        given = {str(name): value for name, value in inputs.items()}
        described = {name: _describe(value) for name, value in given.items()}
        return _by_name(
            module, described, lambda name: _as_numpy(given[name]), "the mapping of inputs"
        )
    if isinstance(inputs, InputSource):
        return inputs
    if not isinstance(inputs, Sequence):
        raise ShardingError(
            "bad-inputs",
            f"inputs are {type(inputs).__name__}",
            help="give a list of arrays in order, a mapping from names to arrays, the path of an "
            ".npz, or nothing",
        )
    arguments = module.arguments
    if len(inputs) != len(arguments):
        raise ShardingError(
            "bad-inputs", f"{len(inputs)} arrays given for {len(arguments)} arguments"
        )
    described = {str(index): _describe(value) for index, value in enumerate(inputs)}
    return _by_name(
        module, described, lambda name: _as_numpy(inputs[int(name)]), "the list of inputs"
    )


@dataclass(frozen=True)
class _GivenInputs:
    """The user's arrays, read when asked for."""

    names: tuple[str, ...]
    dtypes: tuple[np.dtype, ...]
    read: Callable[[str], np.ndarray]

    def array(self, index: int) -> np.ndarray:
        # Not `ascontiguousarray`, which makes a vector of a scalar.
        found = np.asarray(self.read(self.names[index]), order="C")
        wanted = self.dtypes[index]
        return found if found.dtype == wanted else found.view(wanted)


def _by_name(
    module: Module,
    described: Mapping[str, ArrayDescription],
    read: Callable[[str], np.ndarray],
    origin: str,
) -> InputSource:
    sink = Sink()
    names: list[str] = []
    arguments = module.arguments
    paths = [argument.path for argument in arguments]
    for argument in arguments:
        found = [n for n in dict.fromkeys(_names_of(argument, paths)) if n in described]
        if len(found) > 1:
            told = " and ".join(f'"{name}"' for name in found)
            sink.error(
                "bad-inputs",
                f"{origin} has {told}, which are both {argument}",
                path=argument.path,
                help="give it once",
            )
            continue
        name = found[0] if found else None
        if name is None:
            close = did_you_mean(argument.path, [n for n in described if n not in paths])
            sink.error(
                "bad-inputs",
                f"{origin} has no value for {argument}",
                path=argument.path,
                help=close or f'give it as "{argument.path}" or "arg{argument.index}"',
            )
            continue
        names.append(name)
        _check_fit(argument, name, described[name], origin, sink)
    known = {name for argument in arguments for name in _names_of(argument, paths)}
    for name in described:
        if name not in known:
            sink.error(
                "bad-inputs",
                f'{origin} has "{name}", which is no argument',
                help=did_you_mean(name, paths),
            )
    sink.raise_errors()
    return _GivenInputs(tuple(names), tuple(dtype_of(a) for a in arguments), read)


def _names_of(argument: EntryValue, paths: Sequence[str]) -> list[str]:
    """What an argument may be called, best first; a path that several share names none of them."""
    positions = [f"arg{argument.index}", f"arr_{argument.index}", str(argument.index)]
    if paths.count(argument.path) > 1:
        return positions
    return [argument.path, argument.raw, *positions]


def _check_fit(
    argument: EntryValue, name: str, found: ArrayDescription, origin: str, sink: Sink
) -> None:
    wanted = dtype_of(argument)
    if found.shape != argument.shape:
        sink.error(
            "bad-inputs",
            f'{origin}: "{name}" has shape {list(found.shape)}, {argument} needs '
            f"{list(argument.shape)}",
            path=argument.path,
        )
    # numpy writes bfloat16 and its like as bytes without a type.
    untyped = found.dtype.kind == "V" and found.dtype.names is None
    # Of numpy's own types 1 is said there, of float8_e5m2 2, though it calls itself a float.
    bytes_of_it = untyped and found.dtype.itemsize == wanted.itemsize and wanted.isbuiltin == 2
    if found.dtype != wanted and not bytes_of_it:
        sink.error(
            "bad-inputs",
            f'{origin}: "{name}" holds {found.dtype}, {argument} needs {wanted}',
            path=argument.path,
            help=f"convert it: array.astype({wanted.name!r})",
        )


def _describe(value: Any) -> ArrayDescription:
    bits = _as_numpy(value)
    return ArrayDescription(bits.shape, bits.dtype)


def _as_numpy(value: Any) -> np.ndarray:
    import jax
    import jax.numpy as jnp

    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)
