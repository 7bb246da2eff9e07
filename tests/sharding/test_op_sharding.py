"""XLA's proto, as XLA writes it for each text of the known answers, and with bytes gone wrong."""

import jax.extend.sharding as jax_extend
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpass.canon import HloSharding
from shardpass.diagnostics import ShardingError
from shardpass.sharding.op_sharding import from_proto_bytes
from tests.cases import each
from tests.strategies import hlo_shardings

JaxHloSharding = type(jax_extend.get_hlo_sharding_from_serialized_proto(b""))


def proto_of(text):
    return jax_extend.get_serialized_proto_from_hlo_sharding(JaxHloSharding.from_string(text))


@each("hlo_sharding_text", lambda row: row["tier"] == "core" and row["ok"])
def test_what_xla_writes_for_a_text_is_read_as_the_text(row):
    assert from_proto_bytes(proto_of(row["text"])) == HloSharding.parse(row["text"])
    assert str(from_proto_bytes(proto_of(row["text"]))) == row["canonical"]


FAULTS = {
    "axis-order",
    "bad-mesh",
    "bad-sub-axis",
    "bad-tile-assignment",
    "duplicate-axis",
    "duplicate-device",
    "not-expressible",
    "syntax",
}
NAMED = [
    "{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}",
    "{mesh['x'=2,'y'=4], [{'x', ?}, {?}], replicated={'y'}}",
    "{mesh['x'=2,'y'=4], [{'x'}, {}], unreduced={'y'}}",
    "{mesh['x'=2,'y'=4], [{'x'}, {}], manual={'y'}}",
    "{mesh['x'=8], [{'x':(2)4}, {'x':(1)2}]}",
    "{mesh['x'=2,'y'=4], device_ids=(3,1,0,2,5,7,6,4), [{'x'}, {'y'}]}",
    "{mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)), [{'x'}, {'y'}]}",
    "{mesh['x'=2,'y'=4], replicated}",
    "{mesh['x'=2,'y'=4], manual}",
    "{mesh['x'=2,'y'=4], unreduced}",
    "{{replicated}, {mesh['x'=2,'y'=4], [{'x'}, {'y'}]}}",
]


@pytest.mark.parametrize("text", NAMED)
def test_named_shardings(text):
    found = from_proto_bytes(proto_of(text))
    assert str(found) == text
    assert found == HloSharding.parse(text)


def test_a_maximal_mesh():
    found = from_proto_bytes(proto_of("{maximal_mesh[device_id=3]}"))
    assert found == HloSharding.maximal(3)
    assert str(found) == "{single_device[device_id=3]}"


def test_how_partial_results_of_named_axes_combine():
    note = 'metadata={op_type="sdy::reduction_op" op_name="MAX"}'
    found = from_proto_bytes(
        proto_of(f"{{mesh['x'=2,'y'=4], [{{'x'}}], unreduced={{'y'}}, {note}}}")
    )
    assert found.reduction == "max"
    assert str(found) == "{mesh['x'=2,'y'=4], [{'x'}], unreduced=max{'y'}}"
    tiled = from_proto_bytes(
        proto_of(f"{{devices=[2,4]<=[8] last_tile_dims={{unreduced}} {note}}}")
    )
    assert tiled.reduction == "max"


@pytest.mark.parametrize(
    ("data", "slug", "message"),
    [
        (
            b"\x72\x10\x12\x0e\x0a\x05\x0a\x01x\x10\x02\x0a\x05\x0a\x01y\x18\x04",
            "syntax",
            "byte 16: an axis of a mesh has no field 3; this is no serialized OpSharding",
        ),
        (
            b"\x72\x0d\x12\x07\x0a\x05\x0a\x01x\x10\x02\x1a\x02\x0a\x00",
            None,
            None,
        ),
        (
            b"\x72\x0f\x12\x07\x0a\x05\x0a\x01x\x10\x02\x1a\x04\x0a\x02\x08\x01",
            "syntax",
            "byte 15: axis 1 of a mesh that has 1; this is no serialized OpSharding",
        ),
        (
            b"\x72\x13\x12\x07\x0a\x05\x0a\x01x\x10\x02\x1a\x08\x0a\x06\x12\x04\x08\x01\x10\x02",
            "bad-sub-axis",
            '"x":(1)2 is the whole of its axis',
        ),
        (
            b"\x72\x09\x12\x07\x0a\x05\x0a\x01x\x10\x00",
            "bad-mesh",
            'axis "x" has size 0, below 1',
        ),
        (
            b"\x72\x09\x12\x07\x0a\x05\x0a\x01\xff\x10\x02",
            "syntax",
            "byte 8: name is no UTF-8; this is no serialized OpSharding",
        ),
    ],
)
def test_named_shardings_that_cannot_be(data, slug, message):
    """jaxlib aborts the process on nearly all of them."""
    if slug is None:
        assert str(from_proto_bytes(data)) == "{mesh['x'=2], [{'x', ?}]}"
        return
    with pytest.raises(ShardingError) as info:
        from_proto_bytes(data)
    assert (info.value.diagnostic.slug, info.value.diagnostic.message) == (slug, message)


@given(st.lists(hlo_shardings(), max_size=3))
@settings(deadline=None)
def test_tuples_are_read_leaf_by_leaf(elements):
    whole = HloSharding.tuple_of(elements)
    assert from_proto_bytes(proto_of(str(whole))) == whole


@given(hlo_shardings().map(str) | st.sampled_from(NAMED), st.data())
@settings(deadline=None, max_examples=300)
def test_damaged_bytes_are_a_sharding_or_an_error(text, data):
    """Never anything else, whatever byte is changed, put in or left out."""
    proto = bytearray(proto_of(text) or b"\x08\x00")
    place = data.draw(st.integers(0, len(proto) - 1))
    change = data.draw(st.sampled_from(["change", "insert", "drop", "end"]))
    if change == "change":
        proto[place] = data.draw(st.integers(0, 255))
    elif change == "insert":
        proto.insert(place, data.draw(st.integers(0, 255)))
    elif change == "drop":
        del proto[place]
    else:
        del proto[place:]
    try:
        found = from_proto_bytes(bytes(proto))
    except ShardingError as error:
        found = error
    if isinstance(found, ShardingError):
        assert found.diagnostic.slug in FAULTS
    else:
        assert HloSharding.parse(str(found)) == found
