"""``visualize``: a picture of how a value is laid out, from whatever says so."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.core import ShapedArray, Tracer
from rich.console import Console, ConsoleOptions, RenderableType

from shardpass.canon import HloSharding, MeshShape, TensorSharding
from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError
from shardpass.report.device_grid import (
    DeviceGrid,
    grid_of_blocks,
    grid_of_hlo_sharding,
    grid_of_mesh,
    grid_of_tensor_sharding,
)
from shardpass.report.grid_picture import numbers_text
from shardpass.report.grid_svg import grid_svg
from shardpass.report.grid_terminal import grid_renderables, grid_text
from shardpass.sharding import (
    GSPMDSharding,
    NamedSharding,
    PmapSharding,
    PositionalSharding,
    Sharding,
    as_mesh_shape,
)
from shardpass.sharding.base import device_order, normal_form

JaxSharding = jax.sharding.Sharding
Shape: TypeAlias = tuple[int, ...]

# Named one by one in a picture's words, beyond that only counted.
_MOST_PROCESSES = 4


@dataclass(frozen=True, slots=True, repr=False)
class Visualization:
    """A picture of ``grid``: text in a terminal, SVG in a notebook.

    ``print`` it, or name it at a prompt or in a notebook's cell. On a terminal that takes colors
    (and where ``NO_COLOR`` is not set) the text is colored, everywhere else it is plain; it is as
    wide as the terminal. :meth:`to_text` and :meth:`to_svg` depend on nothing but their arguments.
    """

    grid: DeviceGrid

    def to_text(self, width: int = 80, *, ascii_only: bool = False) -> str:
        """The picture as plain text, in lines of no more than ``width`` characters."""
        return grid_text(self.grid, width, ascii_only=ascii_only)

    def to_svg(self) -> str:
        """The picture as an ``<svg>`` element, which is also what an ``.svg`` file holds."""
        return grid_svg(self.grid)

    def __str__(self) -> str:
        console = Console(force_jupyter=False)
        if console.color_system is None or console.no_color:
            return self.to_text(console.width, ascii_only=console.options.ascii_only)
        with console.capture() as captured:
            console.print(self)
        return captured.get().removesuffix("\n")

    def __repr__(self) -> str:
        return str(self)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        return grid_renderables(self.grid, options)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x: auto">{self.to_svg()}</div>'


def visualize(subject: Any, shape: Sequence[int] | None = None) -> Visualization:
    """A picture of how a value is laid out: which devices hold which of its blocks.

    ::

        >>> print(shardpass.visualize(array))
        float32[8,16] [{"x"}, {"y"}] on mesh x=2, y=4
        8 cpu devices: 8 blocks of 4x4, each on one device
        ┌───────────────┬─────┬─────┬──────┬───────┐
        │ dim 1 → {"y"} │     │     │      │       │
        │ dim 0 ↓ {"x"} │ 0:4 │ 4:8 │ 8:12 │ 12:16 │
        ├───────────────┼─────┼─────┼──────┼───────┤
        │ 0:4           │  0  │  1  │  2   │   3   │
        ├───────────────┼─────┼─────┼──────┼───────┤
        │ 4:8           │  4  │  5  │  6   │   7   │
        └───────────────┴─────┴─────┴──────┴───────┘

    Rows and columns are the last two dimensions that are cut; further ones that are cut have a grid
    for each of their blocks. Devices are named by their ids, those of a mesh without devices by
    their place in it. Nothing is moved, compiled or run.

    Args:
      subject: a JAX array or anything else with a ``sharding`` and a ``shape``; a sharding of any
        class, ours or JAX's, with devices or without; a :class:`shardpass.TensorSharding` or
        :class:`shardpass.HloSharding`, or the text of one; a mesh.
      shape: of the value, in elements. An array has its own, and another one given here takes its
        place; a sharding without one shows its blocks without saying where they start and stop.

    Raises:
      ShardingError: ``abstract-type`` for what has no sharding; ``rank-mismatch`` for a shape of
        another rank, and where a sharding without a shape does not say how many dimensions there
        are; ``indivisible``; ``dynamic-shape`` for a dimension that has no size; what the parsers
        raise.
    """
    sizes = None if shape is None else _sizes(shape)
    if isinstance(subject, (MeshShape, jax.sharding.Mesh, jax.sharding.AbstractMesh)):
        return Visualization(_of_mesh(subject, sizes))
    sharding: Any = subject
    value = ""
    if not _is_sharding(subject):
        sharding = _sharding_of(subject)
        sizes = _sizes(subject.shape) if sizes is None else sizes
        value = str(getattr(subject, "dtype", ""))
    if sizes is not None:
        value += f"[{','.join(map(str, sizes))}]"
    return Visualization(_of_sharding(sharding, sizes, value))


def _of_sharding(sharding: Any, shape: Shape | None, value: str) -> DeviceGrid:
    if isinstance(sharding, str):
        sharding = _parsed(sharding)
    if isinstance(sharding, TensorSharding):
        return grid_of_tensor_sharding(sharding, shape, value=value)
    if isinstance(sharding, HloSharding):
        return grid_of_hlo_sharding(sharding, shape, value=value)
    if type(sharding) is jax.sharding.NamedSharding:
        sharding = NamedSharding.from_jax(sharding)
    devices = _devices_of(sharding)
    if isinstance(sharding, NamedSharding):
        rank = len(sharding.spec) if shape is None else len(shape)
        grid = grid_of_tensor_sharding(
            sharding.canonical(rank),
            shape,
            value=value,
            tiles=sharding.canonical_hlo(rank),
            manual_axes=sharding.manual_axes,
        )
    else:
        grid = _of_numbered_devices(sharding, shape, value, devices)
    grid = replace(grid, notes=_memory_notes(sharding, devices))
    return grid if devices is None else _on_devices(grid, devices)


def _of_numbered_devices(
    sharding: Any, shape: Shape | None, value: str, devices: tuple[Device, ...] | None
) -> DeviceGrid:
    """The grid under a sharding of a class that names no axes."""
    rank = _rank_of(sharding) if shape is None else len(shape)
    try:
        tiles = (
            normal_form(sharding, rank)
            if isinstance(sharding, JaxSharding)
            else sharding.canonical_hlo(rank)
        )
    except ShardingError as error:
        if shape is None and error.slug in ("rank-mismatch", "not-expressible"):
            raise ShardingError(
                "rank-mismatch",
                f"{type(sharding).__name__} does not say how many dimensions the value has",
                help="pass the shape as well",
            ) from None
        if shape is None or devices is None or error.slug != "not-expressible":
            raise
        # What a pmap takes apart: the devices hold less than a block, and no tile says that.
        blocks = _blocks_of(sharding, shape, devices)
        return grid_of_blocks(blocks, shape, value=value, layout=_short(sharding, 160))
    return grid_of_hlo_sharding(tiles, shape, value=value, num_devices=sharding.num_devices)


def _rank_of(sharding: Any) -> int:
    """How many dimensions the sharding speaks of; 0 for one that has no number of its own."""
    if isinstance(sharding, PositionalSharding):
        return sharding.ndim
    if isinstance(sharding, PmapSharding):
        return len(sharding.sharding_spec.sharding)
    if isinstance(sharding, GSPMDSharding):
        return sharding.hlo_sharding.rank or 0
    return 0


def _blocks_of(sharding: Any, shape: Shape, devices: tuple[Device, ...]) -> np.ndarray:
    """What ``devices_indices_map`` says, as :func:`shardpass.canon.device_blocks` says it."""
    indices = sharding.devices_indices_map(shape)
    rows = [
        [
            entry.indices(size)[:2] if isinstance(entry, slice) else (entry, entry + 1)
            for entry, size in zip(indices[device], shape, strict=True)
        ]
        for device in devices
    ]
    return np.array(rows, dtype=np.int64).reshape((len(devices), len(shape), 2))


def _of_mesh(mesh: Any, shape: Shape | None) -> DeviceGrid:
    if shape is not None:
        raise ShardingError(
            "abstract-type",
            f"a mesh lays out no value of shape {shape}",
            help="pass a sharding, NamedSharding(mesh, spec)",
        )
    grid = grid_of_mesh(as_mesh_shape(mesh))
    if isinstance(mesh, jax.sharding.Mesh) and not mesh.empty:
        return _on_devices(grid, tuple(mesh.devices.flat))
    return grid


def _on_devices(grid: DeviceGrid, devices: tuple[Device, ...]) -> DeviceGrid:
    """``grid`` with the ids of real devices for its numbers."""
    processes: dict[int, list[int]] = {}
    for device in devices:
        processes.setdefault(device.process_index, []).append(device.id)
    return replace(
        grid,
        ids=tuple(device.id for device in devices),
        platform=devices[0].platform,
        notes=(*grid.notes, *_process_notes(processes)),
    )


def _memory_notes(sharding: Any, devices: tuple[Device, ...] | None) -> tuple[str, ...]:
    """The kind of memory, where it is not the one that the devices have for everything."""
    kind = sharding.memory_kind
    if kind is None or (
        devices and kind == jax.sharding.SingleDeviceSharding(devices[0]).memory_kind
    ):
        return ()
    return (f"in memory of kind {kind}",)


def _process_notes(processes: dict[int, list[int]]) -> tuple[str, ...]:
    if len(processes) < 2:
        return ()
    if len(processes) > _MOST_PROCESSES:
        return (f"in {len(processes)} processes",)
    each = (
        f"devices {numbers_text(sorted(ids), len(ids), 4, '...')} in process {process}"
        for process, ids in sorted(processes.items())
    )
    return ("; ".join(each),)


def _is_sharding(subject: object) -> bool:
    kinds = (str, JaxSharding, Sharding, TensorSharding, HloSharding)
    # What stands for a sharding whose devices are not here has no class of JAX's.
    return isinstance(subject, kinds) or hasattr(subject, "canonical_hlo")


def _sharding_of(subject: Any) -> Any:
    """The sharding of an array, or of what describes one."""
    if isinstance(subject, Tracer):
        subject = jax.typeof(subject)
    sharding = getattr(subject, "sharding", None)
    if isinstance(subject, ShapedArray) and not _is_explicit(sharding):
        sharding = None
    if sharding is not None and hasattr(subject, "shape") and _is_sharding(sharding):
        return sharding
    text = _short(subject)
    if isinstance(subject, (ShapedArray, jax.ShapeDtypeStruct)):
        message, help = f"{text} has no sharding yet", "compile first, or pass a sharding"
    elif isinstance(subject, np.ndarray):
        message, help = f"a numpy array is on no device: {text}", "jax.device_put it"
    else:
        message = f"an array or a sharding is needed, not {type(subject).__name__} {text}"
        help = "pass an array, a sharding with a shape, or a mesh"
    raise ShardingError("abstract-type", message, help=help)


def _is_explicit(sharding: Any) -> bool:
    """Whether the sharding in a type is the whole truth: it says nothing of axes of type Auto."""
    mesh = getattr(sharding, "mesh", None)
    return mesh is not None and bool(mesh.axis_names) and mesh.are_all_axes_explicit


def _devices_of(sharding: Any) -> tuple[Device, ...] | None:
    """The devices in the order in which the layout numbers them; ``None`` without devices."""
    try:
        if isinstance(sharding, JaxSharding) and not isinstance(sharding, Sharding):
            return device_order(sharding)
        return tuple(sharding.device_order)
    except ShardingError as error:
        if error.slug != "device-free":
            raise
        return None


def _parsed(text: str) -> TensorSharding | HloSharding:
    """Shardy's text or XLA's, which starts with a brace."""
    if text.lstrip().startswith("{"):
        return HloSharding.parse(text)
    return TensorSharding.parse(text)


def _sizes(shape: Sequence[int]) -> Shape:
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise ShardingError(
            "dynamic-shape",
            f"a shape is a tuple of whole numbers, not {_short(shape)}",
            help="write (8, 16)",
        ) from None
    for dimension, size in enumerate(sizes):
        if size < 0:
            raise ShardingError("dynamic-shape", f"dimension {dimension} has size {size}")
    return sizes


def _short(value: object, most: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
