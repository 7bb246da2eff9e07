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
from jax.extend import sharding as jax_extend
from jax.sharding import AxisType
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding as JaxNamed
from jax.sharding import PartitionSpec as JaxSpec
from jax.sharding import SingleDeviceSharding as JaxSingle

from shardpass.sharding import (
    GSPMDSharding,
    Mesh,
    NamedSharding,
    P,
    PmapSharding,
    PositionalSharding,
    SingleDeviceSharding,
)

# No two elements are the same, and no row is like a column: a wrong layout cannot pass by luck.
X = np.arange(64, dtype=np.float32).reshape(8, 8)


@dataclass(frozen=True)
class Case:
    """One layout of an 8 x 8 array.

    ``ours`` and ``theirs`` are made anew each time they are asked for. ``twin`` is a
    ``NamedSharding`` of JAX's that does the same, where there is one, for what JAX does with that
    class alone.
    """

    name: str
    make: Callable[[], tuple[Any, Any]]
    ids: tuple[int, ...]
    equal: bool = True
    axis_type: AxisType | None = None
    spec: tuple[Any, ...] = ()
    make_twin: Callable[[], Any] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def ours(self) -> Any:
        return self.make()[0]

    @property
    def theirs(self) -> Any:
        return self.make()[1]

    @property
    def twin(self) -> Any:
        return self.theirs if self.make_twin is None else self.make_twin()

    @property
    def is_explicit(self) -> bool:
        return self.axis_type is AxisType.Explicit

    @property
    def is_named(self) -> bool:
        return self.axis_type is not None

    def can_move_to(self, other: Case) -> bool:
        """Whether ``device_put`` goes from here to there.

        JAX's asserts that both are ``NamedSharding`` where the same devices come in another order.
        """
        reordered = self.ids != other.ids and sorted(self.ids) == sorted(other.ids)
        return not reordered or (self.is_named and other.is_named)


PERMUTED = (5, 2, 7, 0, 3, 6, 1, 4)
SOME = (6, 3, 1, 4)
IN_ORDER = tuple(range(8))


def _placed(ids: tuple[int, ...]) -> list[Any]:
    return [jax.devices()[index] for index in ids]


def _jax_named(spec, ids, shape, axes, axis_type=AxisType.Auto):
    mesh = JaxMesh(np.array(_placed(ids)).reshape(shape), axes, axis_types=(axis_type,) * len(axes))
    return JaxNamed(mesh, JaxSpec(*spec))


def _named(name, spec, *, ids=IN_ORDER, shape=(2, 4), axes=("x", "y"), axis_type=AxisType.Auto):
    def make():
        devices = np.array(_placed(ids)).reshape(shape)
        ours = NamedSharding(Mesh(devices, axes, axis_type), P(*spec))
        return ours, _jax_named(spec, ids, shape, axes, axis_type)

    return Case(name, make, ids, axis_type=axis_type, spec=spec)


def _single(index):
    def make():
        device = jax.devices()[index]
        return SingleDeviceSharding(device), JaxSingle(device)

    return Case(f"single-{index}", make, (index,))


def _gspmd(name, tiles, spec, *, ids=IN_ORDER, shape=(2, 4)):
    def make():
        devices = tuple(_placed(ids))
        hlo_sharding = type(jax_extend.get_hlo_sharding_from_serialized_proto(b""))
        theirs = jax_extend.GSPMDSharding(devices, hlo_sharding.from_string(tiles))
        return GSPMDSharding(devices, tiles), theirs

    return Case(
        f"gspmd-{name}", make, ids, make_twin=lambda: _jax_named(spec, ids, shape, ("x", "y"))
    )


def _dropped(name, ours, spec, *, ids=IN_ORDER, shape=(2, 4)):
    """A class that JAX has no more: beside a ``NamedSharding`` that does the same."""

    def make():
        return ours(_placed(ids)), _jax_named(spec, ids, shape, ("x", "y"))

    return Case(name, make, ids, equal=False)


AUTO = [
    _named("x-y", ("x", "y")),
    _named("columns", (None, "x")),
    _named("grouped", (("y", "x"),)),
    _named("replicated", ()),
    _named("permuted", ("y", "x"), ids=PERMUTED),
    _named("some", ("x",), ids=SOME, shape=(2, 1, 2), axes=("x", "one", "y")),
]
EXPLICIT = [
    _named("explicit-x-y", ("x", "y"), axis_type=AxisType.Explicit),
    _named("explicit-columns", (None, "y"), axis_type=AxisType.Explicit),
    _named("explicit-grouped", (("y", "x"), None), axis_type=AxisType.Explicit),
    _named("explicit-permuted", ("y", "x"), ids=IN_ORDER[::-1], axis_type=AxisType.Explicit),
]
NAMED = AUTO + EXPLICIT
SINGLE = [_single(3)]
# Under Shardy JAX lowers its own GSPMDSharding where the tiles are an iota, so these are.
GSPMD = [
    _gspmd("x-y", "{devices=[2,4]<=[8]}", ("x", "y")),
    _gspmd("turned", "{devices=[4,2]<=[2,4]T(1,0)}", ("y", "x"), ids=PERMUTED),
    _gspmd("partly", "{devices=[1,2,4]<=[8] last_tile_dim_replicate}", (None, "x")),
    _gspmd("replicated", "{replicated}", (), ids=SOME, shape=(2, 2)),
]
POSITIONAL = [
    _dropped("positional-x-y", lambda d: PositionalSharding(d).reshape(2, 4), ("x", "y")),
    _dropped("positional-turned", lambda d: PositionalSharding(d).reshape(2, 4).T, ("y", "x")),
    _dropped(
        "positional-partly",
        lambda d: PositionalSharding(d).reshape(2, 4).replicate(0),
        (None, "y"),
        ids=PERMUTED,
    ),
    _dropped(
        "positional-replicated",
        lambda d: PositionalSharding(d).replicate(),
        (),
        ids=SOME,
        shape=(2, 2),
    ),
]
PMAP = [
    _dropped(
        "pmap-rows", lambda d: PmapSharding.default((8, 8), devices=d), (("x", "y"),), ids=PERMUTED
    ),
    _dropped("pmap-columns", lambda d: PmapSharding.default((8, 8), 1, d), (None, ("x", "y"))),
    _dropped(
        "pmap-replicated",
        lambda d: PmapSharding.default((8, 8), None, d),
        (),
        ids=SOME,
        shape=(2, 2),
    ),
]
ALL = NAMED + SINGLE + GSPMD + POSITIONAL + PMAP
# One of each class, none of them the plainest.
FEW = [
    case
    for case in ALL
    if case.name
    in {
        "permuted",
        "explicit-columns",
        "single-3",
        "gspmd-turned",
        "positional-turned",
        "pmap-rows",
    }
]


@dataclass(frozen=True)
class Compiled:
    """A case, and who partitions the programs with it."""

    partitioner: str
    case: Case

    def __str__(self) -> str:
        return f"{self.partitioner}-{self.case}"


def under_both(cases: list[Case]) -> list[Compiled]:
    """All of the cases under Shardy, and a few under GSPMD, which JAX is about to leave behind."""
    few = [case for case in cases if case in FEW]
    return [Compiled("shardy", case) for case in cases] + [Compiled("gspmd", case) for case in few]


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
    same_shards(ours, theirs)
    for shard in ours.addressable_shards:
        np.testing.assert_array_equal(shard.data, whole[shard.index])


def same_shards(ours: jax.Array, theirs: jax.Array) -> None:
    """Every device holds the same block in both."""
    for shard, other in zip(ours.addressable_shards, theirs.addressable_shards, strict=True):
        assert shard.device == other.device
        assert shard.index == other.index
        assert shard.replica_id == other.replica_id
        np.testing.assert_array_equal(shard.data, other.data)


def both_ways(case: Case, run: Callable[[Any], jax.Array], whole: Any) -> jax.Array:
    """What ``run(sharding)`` gives with ours, compared with what it gives with JAX's.

    ``run`` makes its functions anew, so that neither of the two meets what the other has traced.
    """
    ours, theirs = run(case.ours), run(case.theirs)
    same(ours, theirs, whole)
    return ours


def one_trace(ours: Any, theirs: Any) -> None:
    """A jitted function is traced and compiled once for both, whichever comes first."""
    for order in ((ours, theirs), (theirs, ours)):
        traced = []

        def f(a, traced=traced):
            traced.append(a)
            return a + 1

        step = jax.jit(f)
        arguments = [jax.device_put(X, sharding) for sharding in (*order, *order)]
        with compiles() as compiled:
            for argument in arguments:
                step(argument)
        assert len(traced) == 1
        assert len(compiled) == 1


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
