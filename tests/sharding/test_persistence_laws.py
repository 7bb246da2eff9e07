"""Laws of saving, over random meshes, specs and shardings.

What is saved comes back equal where its devices are; where they are not, it answers as before and
is put back by ``bind``.
"""

import json
import math
import pickle

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from strategies import global_shapes, mesh_shapes, tensor_shardings, tile_assignments

from shardpass.canon import HloSharding, SubgroupType
from shardpass.diagnostics import ShardingError
from shardpass.sharding import (
    DeviceFreeSharding,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    P,
    PartitionSpec,
    RecordedDevices,
    SingleDeviceSharding,
    from_json,
    spec_of,
    to_json,
)
from shardpass.sharding.recorded_devices import ids_text, read_ids, runs_of
from shardpass.sharding.saved import Saved
from tests.sharding.dropped import pmap_shardings, positional_shardings, shape_for
from tests.sharding.saved_examples import answers

# The first use of JAX within a test takes longer than any deadline that would mean something.
RELAXED = settings(deadline=None)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
kinds = st.sampled_from(["device", "pinned_host", "unpinned_host"])
axis_types = st.sampled_from(list(AxisType))
small_shapes = mesh_shapes(max_devices=8)


@st.composite
def meshes(draw, shapes=small_shapes):
    """On devices in any order, with axes of any type."""
    shape = draw(shapes)
    types = tuple(draw(axis_types) for _ in shape.axes)
    devices = draw(st.permutations(jax.devices()))[: shape.size]
    return Mesh(np.array(devices).reshape(shape.sizes), shape.names, types)


@st.composite
def named_shardings(draw):
    """On such meshes, with specs of closed dimensions."""
    layout = draw(tensor_shardings(mesh_shapes(max_devices=8, permuted=False), sub_axes=False,
                                   replicated=False, unreduced=False, hints=False))  # fmt: skip
    mesh = draw(meshes(st.just(layout.mesh)))
    ids = draw(st.none() | st.permutations(range(mesh.size)).map(tuple))
    return NamedSharding(mesh, spec_of(layout), memory_kind=draw(kinds), _logical_device_ids=ids)


@st.composite
def gspmd_shardings(draw):
    """Tiles in either notation, with copies, over devices in any order."""
    tile = draw(tile_assignments(max_devices=8))
    groups = draw(st.sampled_from([(), (SubgroupType.REPLICATED,), (SubgroupType.MANUAL,)]))
    devices = draw(st.permutations(jax.devices()))[: tile.size]
    tiles = HloSharding.tiled(tile, groups)
    return GSPMDSharding(devices, tiles, memory_kind=draw(kinds))


@st.composite
def specs(draw):
    """Of any axis names, in any entries, unreduced and reduced."""
    axes = draw(st.lists(names, unique=True, max_size=6))
    entries, spec = [], {"unreduced": set(), "reduced": set()}
    while axes:
        where = draw(st.sampled_from(["entry", "tuple", "unreduced", "reduced", "none", "open"]))
        if where == "tuple":
            count = draw(st.integers(1, len(axes)))
            entries.append(tuple(axes[:count]))
            del axes[:count]
        elif where in spec:
            spec[where].add(axes.pop())
        else:
            entries.append({"none": None, "open": P.UNCONSTRAINED}.get(where) or axes.pop())
    return P(*entries, **spec)


def away(value):
    """``value`` as it is loaded where no device of its platform is."""
    return from_json(to_json(value).replace('"platform": "cpu"', '"platform": "tpu"'))


def comes_back(value):
    """By JSON and by pickle, equal and the same to look at."""
    for again in (from_json(to_json(value)), pickle.loads(pickle.dumps(value))):
        assert again == value
        assert hash(again) == hash(value)
        assert repr(again) == repr(value)
        assert type(again) is type(value)


@given(meshes())
@RELAXED
def test_meshes(mesh):
    comes_back(mesh)
    comes_back(mesh.without_devices())
    loaded = away(mesh)
    assert loaded == mesh.without_devices()
    record = str(RecordedDevices.of(mesh.devices.flat))
    assert str(loaded.recorded_devices) == record.replace("cpu", "tpu")
    assert away(loaded) == loaded
    assert away(loaded).recorded_devices == loaded.recorded_devices
    assert loaded.bind(mesh.devices) == mesh


@given(specs())
@RELAXED
def test_specs(spec):
    comes_back(spec)
    assert type(from_json(to_json(spec.to_jax()))) is PartitionSpec
    assert from_json(to_json(spec.to_jax())) == spec


@given(named_shardings(), st.data())
@RELAXED
def test_named_shardings(sharding, data):
    comes_back(sharding)
    shape = data.draw(global_shapes(sharding.canonical(len(sharding.spec))))
    loaded = away(sharding)
    assert type(loaded) is NamedSharding
    assert answers(loaded, shape) == answers(sharding, shape)
    assert loaded.bind(sharding.mesh.devices) == sharding
    assert away(loaded) == loaded


@given(st.sampled_from(range(8)), kinds)
@RELAXED
def test_single_device_shardings(index, kind):
    sharding = SingleDeviceSharding(jax.devices()[index], memory_kind=kind)
    comes_back(sharding)
    free_form_answers(sharding, (3, 2))


@given(gspmd_shardings(), st.integers(1, 3))
@RELAXED
def test_gspmd_shardings(sharding, times):
    comes_back(sharding)
    free_form_answers(
        sharding, tuple(8 * 3 * times for _ in range(sharding.hlo_sharding.rank or 0))
    )


@given(positional_shardings())
@RELAXED
def test_positional_shardings(sharding):
    comes_back(sharding)
    free_form_answers(sharding, tuple(2 * size for size in sharding.shape))


@given(pmap_shardings(unstacked=True))
@RELAXED
def test_pmap_shardings(sharding):
    comes_back(sharding)
    free_form_answers(sharding, shape_for(sharding.sharding_spec))


def free_form_answers(sharding, shape):
    """Without devices it says what it said, is saved as it was, and can be put back."""
    loaded = away(sharding)
    assert type(loaded) is DeviceFreeSharding
    assert answers(loaded, shape) == answers(sharding, shape)
    assert to_json(loaded).replace("tpu", "cpu") == to_json(sharding)
    assert away(loaded) == loaded
    assert hash(away(loaded)) == hash(loaded)
    assert loaded.is_equivalent_to(away(loaded), len(shape))
    assert not loaded.is_equivalent_to(sharding, len(shape))
    assert not sharding.is_equivalent_to(loaded, len(shape))
    assert loaded.bind(sharding.device_order) == sharding
    assert sharding.bind(sharding.device_order[::-1]).device_order == sharding.device_order[::-1]


# Records of devices ------------------------------------------------------------------------------

ids = st.one_of(
    st.lists(st.integers(-5, 30), unique=True, max_size=40),
    st.tuples(st.integers(0, 3), st.integers(1, 50), st.integers(1, 5)).map(
        lambda run: list(range(run[0], run[0] + run[1] * run[2], run[2]))
    ),
    st.permutations(range(12)).map(list),
)


@given(ids)
def test_runs_say_the_same_ids(found):
    runs = runs_of(found)
    assert [number for run in runs for number in run] == found
    assert len(runs) <= max(1, len(found))
    if found:
        assert read_ids(Saved(ids_text(found), "ids"), len(found)) == tuple(found)


@given(st.lists(st.tuples(st.sampled_from(["cpu", "gpu", "tpu"]), ids), max_size=4))
def test_records_of_several_platforms(stretches):
    pairs = list(dict.fromkeys((where, number) for where, found in stretches for number in found))
    record = RecordedDevices._of_pairs(pairs)
    assert list(record) == pairs
    assert len(record) == len(pairs)
    again = RecordedDevices.read(Saved(json.loads(json.dumps(record.state())), "devices"))
    assert again == record
    assert hash(again) == hash(record)
    assert pickle.loads(pickle.dumps(record)) == record
    assert record.__reduce__() == (RecordedDevices, (record.groups,))


@given(st.permutations(range(3)), st.sampled_from([(3, 4, 8), (16, 16, 16), (4, 64, 16)]))
def test_a_turned_mesh_has_few_runs(order, shape):
    """A row along its last axis is one run, or two where the row before took its first."""
    turned = np.arange(math.prod(shape)).reshape(shape).transpose(order)
    runs = runs_of(turned.ravel().tolist())
    assert len(runs) <= 2 * turned.size // turned.shape[-1]


@given(st.data())
def test_equal_orders_are_equal_records_however_they_were_written(data):
    count = data.draw(st.integers(1, 12))
    order = data.draw(st.permutations(range(count)))
    written = [{"platform": "cpu", "ids": str(number)} for number in order]
    joined = [{"platform": "cpu", "ids": ", ".join(map(str, order))}]
    record = RecordedDevices.read(Saved(written, "devices"), count)
    assert record == RecordedDevices.read(Saved(joined, "devices"), count)
    if max(order) < 8:
        assert record.here() == tuple(jax.devices()[number] for number in order)
        assert record.find("it") == record.here()
        return
    assert record.here() is None
    missing = [number for number in order if number >= 8]
    with pytest.raises(ShardingError) as caught:
        record.find("it")
    said = f"of those {len(missing)} are not here: cpu:{ids_text(missing)} ("
    assert said in str(caught.value)
