"""``GSPMDSharding``: what it is made of, what it answers, and what it refuses."""

import importlib

import jax
import jax.extend.sharding as jax_extend
import numpy as np
import pytest

from shardpass.canon import HloSharding
from shardpass.diagnostics import ShardingError
from shardpass.sharding import GSPMDSharding, NamedSharding, P, Sharding, SingleDeviceSharding
from tests.sharding.alive import one_value

JaxGSPMDSharding = jax_extend.GSPMDSharding
JaxHloSharding = type(jax_extend.get_hlo_sharding_from_serialized_proto(b""))

# Text, and the canonical form for rank 2, as sdy.
NOTATIONS = [
    ("{replicated}", '<["_axis_0"=8]>, [{}, {}]>'),
    ("{devices=[2,4]<=[8]}", '<["_axis_0"=2, "_axis_1"=4]>, [{"_axis_0"}, {"_axis_1"}]>'),
    (
        "{devices=[4,2]<=[2,4]T(1,0)}",
        '<["_axis_0"=2, "_axis_1"=4]>, [{"_axis_1"}, {"_axis_0"}]>',
    ),
    (
        "{devices=[4,2]0,4,1,5,2,6,3,7}",
        '<["_axis_0"=2, "_axis_1"=4]>, [{"_axis_1"}, {"_axis_0"}]>',
    ),
    (
        "{devices=[2,4]3,1,0,2,5,7,6,4}",
        '<["_axis_0"=2, "_axis_1"=4], device_ids=[3, 1, 0, 2, 5, 7, 6, 4]>, '
        '[{"_axis_0"}, {"_axis_1"}]>',
    ),
    (
        "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
        '<["_axis_0"=4, "_axis_1"=2]>, [{"_axis_0"}, {}]>',
    ),
    (
        "{devices=[2,2,2]<=[8] last_tile_dims={unreduced}}",
        '<["_axis_0"=2, "_axis_1"=2, "_axis_2"=2]>, [{"_axis_0"}, {"_axis_1"}], '
        'unreduced={"_axis_2"}>',
    ),
    ("{unreduced}", '<["_axis_0"=8]>, [{}, {}], unreduced={"_axis_0"}>'),
    ("{manual}", '<["_axis_0"=8]>, [{}, {}]>'),
    (
        "{mesh['x'=8], [{'x':(1)2}, {'x':(2)4}]}",
        '<["x"=8]>, [{"x":(1)2}, {"x":(2)4}]>',
    ),
]
TEXTS = [text for text, _ in NOTATIONS]


def tiles(text, count=8):
    return GSPMDSharding(jax.devices()[:count], text)


def raises(slug, message, help=None):
    """The exact message of an error, and its help."""

    class Expected:
        def __enter__(self):
            self._context = pytest.raises(ShardingError)
            self._info = self._context.__enter__()

        def __exit__(self, *exception):
            swallowed = self._context.__exit__(*exception)
            found = self._info.value.diagnostic
            assert (found.slug, found.message) == (slug, message)
            if help is not None:
                assert found.help == help
            return swallowed

    return Expected()


@pytest.mark.parametrize(("text", "layout"), NOTATIONS)
def test_canonical(text, layout):
    assert tiles(text).to_sdy(2) == f"#sdy.sharding<mesh{layout}"


@pytest.mark.parametrize("text", TEXTS)
def test_hlo_sharding_is_as_given_and_mhlo_is_what_jax_lowers(text):
    sharding = tiles(text)
    assert str(sharding.hlo_sharding) == text
    assert sharding.to_mhlo(2) == str(sharding.to_jax()._to_xla_hlo_sharding(2))
    assert sharding.canonical_hlo(2) == HloSharding.parse(text)


def test_named_tiles_keep_their_axes_and_lower_to_tiles():
    sharding = tiles("{mesh['x'=2,'y'=4], [{'y'}, {'x'}]}")
    assert str(sharding.hlo_sharding) == "{mesh['x'=2,'y'=4], [{'y'}, {'x'}]}"
    assert sharding.to_mhlo(2) == "{devices=[4,2]<=[2,4]T(1,0)}"
    one_value(sharding, tiles("{devices=[4,2]<=[2,4]T(1,0)}"))


@pytest.mark.parametrize("text", [text for text in TEXTS if "mesh" not in text])
def test_every_form_is_taken(text):
    theirs = JaxHloSharding.from_string(text)
    proto = theirs.to_proto()
    forms = [text, HloSharding.parse(text), theirs, proto, proto.SerializeToString()]
    made = [GSPMDSharding(jax.devices(), form) for form in forms]
    for sharding in made:
        assert str(sharding.hlo_sharding) == text
        one_value(sharding, made[0])
        one_value(sharding, JaxGSPMDSharding(jax.devices(), theirs))


def test_what_unreduced_values_combine_by_is_kept():
    text = '{devices=[2,4]<=[8] last_tile_dims={unreduced} metadata={op_type="sdy::reduction_op" '
    text += 'op_name="MAX"}}'
    for form in (text, JaxHloSharding.from_string(text)):
        sharding = GSPMDSharding(jax.devices(), form)
        assert sharding.hlo_sharding.reduction == "max"
        assert sharding.canonical(1).reduction == "max"
        assert GSPMDSharding.from_jax(sharding.to_jax()).hlo_sharding.reduction == "max"
    summed = tiles("{devices=[2,4]<=[8] last_tile_dims={unreduced}}")
    assert summed.hlo_sharding.reduction is None
    one_value(sharding, summed, equal=False)
    one_value(sharding.to_jax(), summed, equal=False)
    one_value(sharding, sharding.to_jax())
    assert not sharding.is_equivalent_to(summed, 1)
    assert summed.is_equivalent_to(summed.to_jax(), 1)
    assert sharding.is_equivalent_to(sharding.to_jax(), 1)


def test_shard_groups_are_kept():
    text = "{devices=[2,4]<=[8] shard_like 3}"
    sharding = GSPMDSharding(jax.devices(), JaxHloSharding.from_string(text))
    assert str(sharding.hlo_sharding) == text
    assert sharding.to_mhlo(2) == text


def test_one_tile_is_replicated_to_jax_and_here():
    one = jax.devices()[:1]
    theirs = JaxHloSharding.from_string("{maximal device=0}")
    for form in ("{maximal device=0}", theirs, "{replicated}"):
        sharding = GSPMDSharding(one, form)
        assert str(sharding.hlo_sharding) == "{replicated}"
        one_value(sharding, JaxGSPMDSharding(one, theirs))
        assert sharding.is_equivalent_to(SingleDeviceSharding(one[0]), 3)
    # Three dimensions of one tile, on device 0, as JAX's PositionalSharding had them.
    proto = b"\x08\x03\x1a\x03\x01\x01\x01\x22\x01\x00"
    assert str(GSPMDSharding(one, proto).hlo_sharding) == "{replicated}"


def test_tiles_that_no_axis_of_the_order_fits():
    """JAX's own class aborts the process when Shardy is to be told of these."""
    sharding = tiles("{devices=[2,3]<=[2,3]T(1,0)}", 6)
    assert sharding.to_sdy(2) == (
        '#sdy.sharding<mesh<["_axis_0"=2, "_axis_1"=3], device_ids=[0, 3, 1, 4, 2, 5]>, '
        '[{"_axis_0"}, {"_axis_1"}]>'
    )
    placed = jax.device_put(np.arange(6.0).reshape(2, 3), sharding)
    doubled = jax.jit(lambda a: a * 2)(placed)
    assert [int(shard.data[0, 0]) for shard in doubled.addressable_shards] == [0, 4, 8, 2, 6, 10]


def test_reference_members(devices):
    sharding = GSPMDSharding(devices, "{devices=[4,2]<=[2,4]T(1,0)}")
    assert isinstance(sharding, Sharding)
    assert isinstance(sharding, JaxGSPMDSharding)
    assert sharding.device_set == set(jax.devices())
    assert sharding.addressable_devices == set(jax.devices())
    assert sharding.num_devices == 8
    assert sharding.is_fully_addressable
    assert not sharding.is_fully_replicated
    assert sharding.memory_kind == "device"
    assert sharding.device_order == tuple(jax.devices())
    assert sharding.manual_axes == ()
    assert sharding.shard_shape((8, 6)) == (2, 3)
    assert sharding.devices_indices_map((8, 6))[jax.devices()[5]] == (slice(2, 4), slice(3, 6))
    assert sharding.addressable_devices_indices_map((8, 6)) == sharding.devices_indices_map((8, 6))


def test_ids_count_along_the_devices_given():
    """A list that is no iota, over devices in an order of their own."""
    order = [jax.devices()[index] for index in (6, 3, 1, 4)]
    sharding = GSPMDSharding(order, "{devices=[4]2,0,3,1}")
    blocks = sharding.devices_indices_map((8,))
    assert [device.id for device in blocks] == [6, 3, 1, 4]
    assert [blocks[device][0].start for device in order] == [2, 6, 0, 4]


def test_get_replicated():
    sharding = GSPMDSharding.get_replicated(jax.devices()[:3], memory_kind="pinned_host")
    assert sharding.is_fully_replicated
    assert sharding.memory_kind == "pinned_host"
    assert sharding.num_devices == 3
    assert sharding.shard_shape((5, 7)) == (5, 7)
    theirs = JaxGSPMDSharding.get_replicated(tuple(jax.devices()[:3]), memory_kind="pinned_host")
    one_value(sharding, theirs)
    assert str(sharding.hlo_sharding) == "{replicated}"


def test_with_memory_kind_keeps_the_class():
    sharding = tiles("{devices=[2,4]<=[8]}")
    host = sharding.with_memory_kind("pinned_host")
    assert type(host) is GSPMDSharding
    assert host.memory_kind == "pinned_host"
    assert host.hlo_sharding == sharding.hlo_sharding
    one_value(host, sharding, equal=False)
    assert not host.is_equivalent_to(sharding, 2)
    one_value(host.with_memory_kind("device"), sharding)


def test_from_jax_and_back():
    sharding = tiles("{devices=[2,4]<=[8]}")
    theirs = sharding.to_jax()
    assert type(theirs) is JaxGSPMDSharding
    one_value(sharding, theirs)
    assert GSPMDSharding.from_jax(sharding) is sharding
    again = GSPMDSharding.from_jax(theirs)
    assert type(again) is GSPMDSharding
    one_value(again, sharding)


def test_equality_is_that_of_jax():
    listed, iota = tiles("{devices=[8]0,1,2,3,4,5,6,7}"), tiles("{devices=[8]<=[8]}")
    one_value(listed, iota)
    one_value(listed, iota.to_jax())
    reordered = GSPMDSharding(jax.devices()[::-1], "{devices=[8]<=[8]}")
    one_value(reordered, iota, equal=False)
    one_value(reordered.to_jax(), iota, equal=False)
    one_value(tiles("{replicated}"), iota, equal=False)


def test_equivalent_to_other_classes(mesh):
    sharding = tiles("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}")
    named = NamedSharding(mesh, P("y"))
    for one, other in ((sharding, named), (sharding, named.to_jax()), (named, sharding)):
        assert one.is_equivalent_to(other, 2)
        assert other.is_equivalent_to(one, 2)
    assert not sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 2)


def test_repr():
    assert repr(tiles("{devices=[2,4]<=[8]}")) == (
        "GSPMDSharding({devices=[2,4]<=[8]}, memory_kind='device')"
    )


# What it refuses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "slug", "message", "offset"),
    [
        ("{devices=[2,banana", "syntax", 'expected a number of tiles, found "b"', 12),
        ("{devices=[2,4]<=[8]} x", "trailing-text", None, 21),
        ("{devices=[2,2]<=[16]}", "bad-tile-assignment", None, 1),
        ("{devices=[4]0,1,1,2}", "duplicate-device", None, None),
        ("replicated", "syntax", None, 0),
    ],
)
def test_bad_text_has_a_place(text, slug, message, offset):
    with pytest.raises(ShardingError) as info:
        tiles(text)
    found = info.value.diagnostic
    assert found.slug == slug
    assert message is None or found.message == message
    assert found.excerpt is not None
    assert offset is None or found.excerpt.column == offset + 1


@pytest.mark.parametrize(
    ("data", "slug", "message"),
    [
        (b"\xff\xff\xffgarbage", "syntax", "byte 0: no field is written as wire type 7"),
        (b"hello world", "syntax", "byte 2: no field is written as wire type 4"),
        (b"\x08", "syntax", "byte 1: a number without an end"),
        (b"\xf8\x01\x00", "syntax", "byte 0: an OpSharding has no field 31"),
        (b"\x08\x03\x1a\x7f", "syntax", "byte 2: a field of 127 bytes, and 0 are left"),
        (b"\x08\x02\x2a\x02\x08\x80", "syntax", "byte 5: a number without an end"),
        (b"\x09" + b"\x00" * 8, "syntax", "byte 0: type is not written as wire type 1"),
    ],
)
def test_bytes_that_are_no_proto(data, slug, message):
    """jaxlib reads all of these, as ``{replicated}`` or so, and says nothing."""
    with raises(slug, f"{message}; this is no serialized OpSharding"):
        GSPMDSharding(jax.devices(), data)


@pytest.mark.parametrize(
    ("data", "slug", "message"),
    [
        (
            b"\x08\x09",
            "syntax",
            "byte 0: an OpSharding has no type 9; this is no serialized OpSharding",
        ),
        (
            b"\x08\x03\x1a\x02\x02\x04",
            "bad-tile-assignment",
            "[2,4] has 8 tiles, the list 0 ids",
        ),
        (
            b"\x08\x03\x1a\x01\x02\x22\x02\x01\x01",
            "duplicate-device",
            "device 1 stands twice in [2]",
        ),
        (
            b"\x08\x03\x1a\x01\x02\x22\x0b\x00" + b"\xff" * 9 + b"\x01",
            "bad-tile-assignment",
            "device id -1 is negative",
        ),
        (
            b"\x08\x03\x1a\x02\x02\x04\x4a\x01\x08\x52\x01\x03",
            "bad-tile-assignment",
            "T(3) is not a permutation of 1 dimensions",
        ),
        (
            b"\x08\x03\x1a\x02\x02\x04\x42\x01\x05\x4a\x01\x08\x52\x01\x00",
            "syntax",
            "an OpSharding has no subgroups of type 5",
        ),
        (b"\x08\x01", "bad-tile-assignment", "a maximal sharding of 0 devices, not of 1"),
    ],
)
def test_protos_that_cannot_be(data, slug, message):
    """Some of these abort the process in jaxlib."""
    with raises(slug, message):
        GSPMDSharding(jax.devices(), data)


def test_unpacked_numbers_are_read_too():
    """Both encodings of a repeated number are valid protobuf."""
    data = b"\x08\x03\x18\x02\x18\x04\x48\x08\x50\x00"
    assert str(GSPMDSharding(jax.devices(), data).hlo_sharding) == "{devices=[2,4]<=[8]}"


def test_tiles_for_other_devices():
    with raises("device-count", "{devices=[2,4]<=[8]} is for 8 devices, there are 4"):
        tiles("{devices=[2,4]<=[8]}", 4)
    with raises("device-count", "{devices=[2,2]5,6,7,8} names device 8 of 4"):
        tiles("{devices=[2,2]5,6,7,8}", 4)
    with raises("device-count", "{mesh['x'=8], replicated} is for 8 devices, there are 4"):
        tiles("{mesh['x'=8], replicated}", 4)


def test_what_is_no_placement_of_one_value():
    with raises(
        "not-expressible",
        "a tuple of 2 shardings is not the sharding of one value",
        help="take its elements",
    ):
        tiles("{{replicated}, {devices=[2,4]<=[8]}}")
    with raises("not-expressible", "{unknown} does not say which block a device holds"):
        tiles("{unknown}")
    with raises(
        "not-expressible",
        "{maximal device=3} leaves 7 of 8 devices without a block; JAX would take it for "
        "{replicated}",
        help="SingleDeviceSharding(devices[3]) is that layout",
    ):
        tiles("{maximal device=3}")
    with raises("device-count", "{maximal device=8} names a device beyond the 8 that there are"):
        tiles("{maximal device=8}")


def test_bad_devices():
    first, second = jax.devices()[:2]
    with raises(
        "not-enough-devices", "a GSPMDSharding needs at least 1 device, and the list is empty"
    ):
        GSPMDSharding([], "{replicated}")
    with raises("duplicate-device", f"device {first} stands twice in the list, at 0 and 2"):
        GSPMDSharding([first, second, first], "{replicated}")
    with raises("abstract-type", "a GSPMDSharding is made of devices; at 1 stands int 1"):
        GSPMDSharding([first, 1], "{replicated}")
    with raises(
        "abstract-type", f"a GSPMDSharding is made of a list of devices, not of Device {first!r}"
    ):
        GSPMDSharding(first, "{replicated}")


def test_devices_of_two_backends():
    other = importlib.import_module("jaxlib.xla_client").make_cpu_client().devices()[1]
    with raises(
        "mixed-backends",
        f"device {other} at 1 is of another backend (cpu) than {jax.devices()[0]} at 0 (cpu)",
    ):
        GSPMDSharding([jax.devices()[0], other], "{replicated}")


def test_bad_tiles_and_memory_kinds():
    with raises("abstract-type", "tiles are needed, not int 3"):
        GSPMDSharding(jax.devices(), 3)
    with raises(
        "memory-kind",
        f"device {jax.devices()[0]} has no memory of kind 'hbm', only device, pinned_host, "
        "unpinned_host",
    ):
        GSPMDSharding(jax.devices(), "{replicated}", memory_kind="hbm")
    with pytest.raises(ShardingError, match="pinned_hots"):
        tiles("{replicated}").with_memory_kind("pinned_hots")


def test_wrong_rank_and_indivisible():
    sharding = tiles("{devices=[2,4]<=[8]}")
    message = "{devices=[2,4]<=[8]} is for 2 dimensions, the value has 3"
    for ask in (
        lambda: sharding.shard_shape((8, 8, 8)),
        lambda: sharding.devices_indices_map((8, 8, 8)),
        lambda: sharding.canonical(3),
        lambda: sharding.canonical_hlo(3),
        lambda: sharding.to_sdy(3),
        lambda: sharding.to_mhlo(3),
        lambda: sharding.check_compatible_aval((8, 8, 8)),
        lambda: sharding.is_equivalent_to(tiles("{replicated}"), 3),
    ):
        with raises("rank-mismatch", message):
            ask()
    with raises(
        "indivisible",
        "dimension 1: 6 elements into 4 pieces",
        help="pad to 8 (nearest sizes that work: 4 and 8), or drop an axis",
    ):
        sharding.shard_shape((8, 6))
    with pytest.raises(ValueError, match="dimension 1: 6 elements into 4 pieces"):
        jax.device_put(np.zeros((8, 6)), sharding)
