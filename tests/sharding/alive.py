"""What the tests named ``test_alive_*`` share: the shardings they try, and what they compare.

A case is one layout twice: one of our objects, and the object of JAX's own that must do the same.
Where JAX still has the class, the two are equal; for the classes that JAX has dropped, the other
one is a ``NamedSharding`` or ``GSPMDSharding`` that puts the same blocks on the same devices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding as JaxNamed
from jax.sharding import PartitionSpec as JaxSpec
from jax.sharding import SingleDeviceSharding as JaxSingle

from shardpass.sharding import Mesh, NamedSharding, P, SingleDeviceSharding

# No two elements are the same, and no row is like a column: a wrong layout cannot pass by luck.
X = np.arange(64, dtype=np.float32).reshape(8, 8)


@dataclass(frozen=True)
class Case:
    """One layout of an 8 x 8 array, as ours and as JAX's."""

    name: str
    make: Callable[[], tuple[Any, Any]]
    equal: bool = True
    axis_type: AxisType | None = None
    spec: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def ours(self) -> Any:
        return self.make()[0]

    @property
    def theirs(self) -> Any:
        return self.make()[1]

    @property
    def is_explicit(self) -> bool:
        return self.axis_type is AxisType.Explicit


def _named(name, spec, *, ids=range(8), shape=(2, 4), axes=("x", "y"), axis_type=AxisType.Auto):
    def make():
        devices = np.array([jax.devices()[index] for index in ids]).reshape(shape)
        jax_mesh = JaxMesh(devices, axes, axis_types=(axis_type,) * len(axes))
        return (
            NamedSharding(Mesh(devices, axes, axis_type), P(*spec)),
            JaxNamed(jax_mesh, JaxSpec(*spec)),
        )

    return Case(name, make, axis_type=axis_type, spec=spec)


def _single(index):
    def make():
        device = jax.devices()[index]
        return SingleDeviceSharding(device), JaxSingle(device)

    return Case(f"single-{index}", make)


AUTO = [
    _named("x-y", ("x", "y")),
    _named("columns", (None, "x")),
    _named("grouped", (("y", "x"),)),
    _named("replicated", ()),
    _named("permuted", ("y", "x"), ids=(5, 2, 7, 0, 3, 6, 1, 4)),
    _named("some", ("x",), ids=(6, 3, 1, 4), shape=(2, 1, 2), axes=("x", "one", "y")),
]
EXPLICIT = [
    _named("explicit-x-y", ("x", "y"), axis_type=AxisType.Explicit),
    _named("explicit-columns", (None, "y"), axis_type=AxisType.Explicit),
    _named("explicit-grouped", (("y", "x"), None), axis_type=AxisType.Explicit),
    _named("explicit-permuted", ("y", "x"), ids=range(7, -1, -1), axis_type=AxisType.Explicit),
]
NAMED = AUTO + EXPLICIT
SINGLE = [_single(3)]
ALL = NAMED + SINGLE


@contextlib.contextmanager
def partitioned_by(name: str) -> Iterator[None]:
    """Compile with Shardy or with GSPMD, and go back to what it was."""
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", name == "shardy")
    try:
        yield
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)


@contextlib.contextmanager
def compiles() -> Iterator[list[float]]:
    """The compiles that happen meanwhile: how long each took, in seconds."""
    found: list[float] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def same(ours: jax.Array, theirs: jax.Array, whole: Any) -> None:
    """Both are ``whole``, and every device holds the same block of it in both."""
    whole = np.asarray(whole)
    np.testing.assert_array_equal(ours, whole)
    assert ours.sharding.device_set == theirs.sharding.device_set
    assert ours.sharding.is_equivalent_to(theirs.sharding, whole.ndim)
    assert theirs.sharding.is_equivalent_to(ours.sharding, whole.ndim)
    for shard, other in zip(ours.addressable_shards, theirs.addressable_shards, strict=True):
        assert shard.device == other.device
        assert shard.index == other.index
        assert shard.replica_id == other.replica_id
        np.testing.assert_array_equal(shard.data, other.data)
        np.testing.assert_array_equal(shard.data, whole[shard.index])


def comes_back(array: jax.Array, case: Case) -> None:
    """The array's sharding is of our class; on Explicit meshes JAX makes it from the type."""
    if not case.is_explicit:
        assert type(array.sharding) is type(case.ours)
    assert isinstance(array.sharding, JaxNamed) == isinstance(case.ours, JaxNamed)


def one_value(ours: Any, theirs: Any, *, equal: bool = True) -> None:
    """Equal both ways with one hash, or different both ways."""
    assert (ours == theirs) == equal
    assert (theirs == ours) == equal
    assert (ours != theirs) != equal
    assert (theirs != ours) != equal
    if equal:
        assert hash(ours) == hash(theirs)
        assert {ours: 1, theirs: 2} == {theirs: 2}
