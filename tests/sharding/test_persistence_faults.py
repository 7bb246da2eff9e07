"""What is damaged, or of another version, is one clear error with the place."""

import copy
import json
import pickle

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpass.diagnostics import ShardingError
from shardpass.sharding import from_json, persistence, to_json
from tests.sharding.saved_examples import everything

MESH = {
    "class": "Mesh",
    "version": 1,
    "axes": [["x", 2], ["y", 4]],
    "axis_types": ["Auto", "Auto"],
    "devices": [{"platform": "cpu", "ids": "0..7"}],
}
SPEC = {"class": "PartitionSpec", "version": 1, "partitions": ["x", None, ["y", "z"]]}
NAMED = {
    "class": "NamedSharding",
    "version": 1,
    "mesh": {key: MESH[key] for key in ("axes", "axis_types", "devices")},
    "spec": {"partitions": ["x"]},
    "memory_kind": "device",
}
SINGLE = {
    "class": "SingleDeviceSharding",
    "version": 1,
    "devices": [{"platform": "cpu", "ids": "3"}],
}
GSPMD = {
    "class": "GSPMDSharding",
    "version": 1,
    "devices": MESH["devices"],
    "op_sharding": "{devices=[2,4]<=[8]}",
}
POSITIONAL = {
    "class": "PositionalSharding",
    "version": 1,
    "devices": MESH["devices"],
    "shape": [2, 2],
    "held": "0..7",
}
PMAP = {
    "class": "PmapSharding",
    "version": 1,
    "devices": MESH["devices"],
    "shape": [2, 4],
    "sharding": [{"chunked": [4]}, None],
    "mesh_mapping": [{"replicated": 2}, {"sharded_axis": 0}],
}
STATES = (MESH, SPEC, NAMED, SINGLE, GSPMD, POSITIONAL, PMAP)
GONE = object()


def changed(state, path, value):
    """A copy of ``state`` with another value at ``path``, or without it."""
    state = copy.deepcopy(state)
    inner = state
    for key in path[:-1]:
        inner = inner[key]
    if value is GONE:
        del inner[path[-1]]
    elif isinstance(inner, list) and path[-1] == len(inner):
        inner.append(value)
    else:
        inner[path[-1]] = value
    return state


@pytest.fixture(autouse=True, scope="module")
def _started():
    jax.devices()


def test_the_states_are_right_before_they_are_damaged():
    for state in STATES:
        assert json.loads(to_json(persistence.restore(state))).items() >= state.items()


MEANS = "means nothing here"
JAX = f"unknown to jax {jax.__version__}, which has"


@pytest.mark.parametrize(
    ("state", "path", "value", "slug", "message"),
    [
        # The head.
        (MESH, ["version"], 2, "bad-state", "saved state.version: version 2 is unknown, this "
         "shardpass reads 1 (load it with the shardpass that saved it, or a newer one)"),
        (MESH, ["version"], "1", "bad-state", "saved state.version: a whole number is needed, not "
         "the text '1'"),
        (MESH, ["version"], True, "bad-state", "not the truth value True"),
        (MESH, ["version"], GONE, "bad-state", "saved state: the key 'version' is missing"),
        (MESH, ["class"], GONE, "bad-state", "saved state: the key 'class' is missing"),
        (MESH, ["class"], "Mash", "bad-state", "saved state.class: the class 'Mash' is unknown to "
         'shardpass, which has'),
        (MESH, ["class"], "Mash", "bad-state", 'did you mean "Mesh"?'),
        (MESH, ["class"], "DeviceFreeSharding", "bad-state", "unknown to shardpass"),
        (MESH, ["class"], None, "bad-state", "saved state.class: a text is needed, not null"),
        # Meshes.
        (MESH, ["axes"], GONE, "bad-state", "Mesh: the key 'axes' is missing (it has 'axis_types',"
         " 'devices')"),
        (MESH, ["axis"], [], "bad-state", f"Mesh: the key 'axis' {MEANS} (did you mean \"axes\"?)"),
        (MESH, ["axes"], None, "bad-state", "Mesh.axes: a list is needed, not null"),
        (MESH, ["axes"], {"x": 2}, "bad-state", "Mesh.axes: a list is needed, not the object "),
        (MESH, ["axes", 1], "y", "bad-state", "Mesh.axes[1]: a list is needed, not the text 'y'"),
        (MESH, ["axes", 1, 2], 4, "bad-state", "Mesh.axes[1]: a list of 2 is needed, not of 3"),
        (MESH, ["axes", 0, 0], 7, "bad-state", "Mesh.axes[0][0]: a text is needed, not the number"),
        (MESH, ["axes", 0, 1], 2.0, "bad-state", "Mesh.axes[0][1]: a whole number is needed, not "
         "the number 2.0"),
        (MESH, ["axes", 1, 0], "x", "bad-mesh", 'Mesh.axes: axis "x" stands 2 times'),
        (MESH, ["axes", 1, 1], 0, "bad-mesh", 'Mesh.axes: axis "y" has size 0'),
        (MESH, ["axes", 1, 0], "", "bad-mesh", "Mesh.axes: axis name '' is empty"),
        (MESH, ["axes", 1, 1], 2**62, "bad-mesh", "Mesh.axes: the mesh x=2, y=4611686018427387904 "
         "has more than 2**63 - 1 devices"),
        (MESH, ["axes", 1, 1], 3, "bad-state", "Mesh.devices: 8 devices where 6 are needed"),
        (MESH, ["axis_types", 0], "Open", "bad-state", f"Mesh.axis_types[0]: the axis type 'Open' "
         f"is {JAX} 'Auto', 'Explicit', 'Manual'"),
        (MESH, ["axis_types", 1], GONE, "bad-state", "Mesh.axis_types: 1 axis types for 2 axes"),
        (MESH, ["devices"], {}, "bad-state", "Mesh.devices: a list is needed, not the object {}"),
        (MESH, ["devices"], [], "bad-state", "Mesh.devices: 0 devices where 8 are needed"),
        (MESH, ["devices", 0, "platform"], 3, "bad-state", "Mesh.devices[0].platform: a text"),
        (MESH, ["devices", 0, "ids"], "0..3, 2..5", "bad-state", "Mesh.devices: device cpu:2 "
         "stands twice"),
        (MESH, ["devices", 1], {"platform": "cpu", "ids": "0"}, "bad-state", "9 devices where 8"),
        (MESH, ["devices", 0, "ids"], "0-7", "bad-state", "Mesh.devices[0].ids: ids are written as "
         "'0..7', '0..12 by 4' or '3, 5', not '0-7'"),
        (MESH, ["devices", 0, "ids"], "0..7 by 2", "bad-state", "the run '0..7 by 2' does not end"),
        (MESH, ["devices", 0, "ids"], "0..7 by 0", "bad-state", "not '0..7 by 0'"),
        (MESH, ["devices", 0, "ids"], "", "bad-state", "not ''"),
        (MESH, ["devices", 0, "ids"], "0..999999999999999999", "bad-state", "Mesh.devices: "
         "1000000000000000000 devices where 8 are needed"),
        (MESH, ["devices", 0, "ids"], "9" * 5000, "bad-state", f"not '{'9' * 40}'"),
        (MESH, ["abstract_device"], {"platform": "tpu"}, "bad-state", "Mesh.abstract_device: the "
         "key 'device_kind' is missing"),
        # Specs.
        (SPEC, ["partitions", 1], 3, "bad-state", "PartitionSpec.partitions[1]: no entry of a "
         "spec: 3 (write null, an axis name"),
        (SPEC, ["partitions", 1], {"unconstrained": 1}, "bad-state", "partitions[1]: no entry"),
        (SPEC, ["partitions", 2, 1], None, "bad-state", "PartitionSpec.partitions[2][1]: a text is "
         "needed, not null"),
        (SPEC, ["partitions", 1], "", "bad-spec", "PartitionSpec: entry 1 is an empty axis name"),
        (SPEC, ["unreduced"], "x", "bad-state", "PartitionSpec.unreduced: a list is needed"),
        (SPEC, ["unreduced"], ["x"], "bad-spec", 'PartitionSpec: axis "x" cannot be both a cut '),
        (SPEC, ["unreduced_kind"], "mean", "bad-state", "PartitionSpec.unreduced_kind: the kind of "
         f"reduction 'mean' is {JAX} 'sum'"),
        # Named shardings.
        (NAMED, ["mesh"], GONE, "bad-state", "NamedSharding: the key 'mesh' is missing"),
        (NAMED, ["mesh", "axes", 0, 1], "2", "bad-state", "NamedSharding.mesh.axes[0][1]: a whole"),
        (NAMED, ["mesh", "version"], 1, "bad-state", f"Sharding.mesh: the key 'version' {MEANS}"),
        (NAMED, ["spec", "partitions", 0], "z", "unknown-axis", "NamedSharding: axis "
         '"z" is not in the mesh x=2, y=4'),
        (NAMED, ["spec", "partitions", 0], {"open": True}, "bad-state", "NamedSharding.spec.parti"),
        (NAMED, ["memory_kind"], "ram", "memory-kind", "NamedSharding: device cpu:0 has no "
         "memory of kind 'ram', only "),
        (NAMED, ["memory_kind"], 3, "bad-state", "NamedSharding.memory_kind: a text is needed"),
        (NAMED, ["logical_device_ids"], "0..6", "bad-state", "NamedSharding.logical_device_ids: 7 "
         "ids where 8 are needed"),
        (NAMED, ["logical_device_ids"], "0..6, 0", "bad-mesh", "NamedSharding.logical_device_ids: "
         "device id 0 stands twice"),
        # The others.
        (SINGLE, ["devices"], GONE, "bad-state", "SingleDeviceSharding: the key 'devices' is "),
        (SINGLE, ["devices"], [], "bad-state", "SingleDeviceSharding.devices: no devices"),
        (SINGLE, ["devices", 0, "ids"], "3, 4", "bad-state", "SingleDeviceSharding.devices: 2 "
         "devices where 1 is needed"),
        (SINGLE, ["devices", 0, "ids"], "0..99999999999", "bad-state", "SingleDeviceSharding."
         "devices: a list of 100000000000 is beyond the 16777216 that are written out"),
        (GSPMD, ["op_sharding"], "{devices=[2,4]<=[8", "syntax", "GSPMDSharding.op_sharding: "),
        (GSPMD, ["op_sharding"], "{devices=[2,2]<=[4]}", "device-count", "GSPMDSharding.op_shard"
         "ing: {devices=[2,2]<=[4]} is for 4 devices, there are 8"),
        (GSPMD, ["op_sharding"], "{{replicated}}", "not-expressible", "op_sharding: a tuple"),
        (GSPMD, ["op_sharding"], [], "bad-state", "GSPMDSharding.op_sharding: a text is needed"),
        (POSITIONAL, ["shape", 0], 3, "bad-state", "PositionalSharding.shape: 8 devices cannot be "
         "in places of shape (3, 2)"),
        (POSITIONAL, ["shape", 0], 0, "bad-state", "PositionalSharding.shape: 8 devices cannot"),
        (POSITIONAL, ["held"], "1..8", "bad-state", "PositionalSharding.held: each of 0..7 is "
         "needed once"),
        (POSITIONAL, ["held"], "0..8", "bad-state", "PositionalSharding.held: 9 ids where 8"),
        (PMAP, ["shape", 1], 2, "bad-state", "PmapSharding.shape: 8 devices are no array of shape"),
        (PMAP, ["sharding", 0], {"chunked": [5]}, "bad-state", "PmapSharding.devices: 8 devices"),
        (PMAP, ["sharding", 0], {"chunked": [0]}, "bad-spec", "PmapSharding.sharding[0]: Chunked"),
        (PMAP, ["sharding", 0], {"chunked": [4], "unstacked": 4}, "bad-state", "[0]: null,"),
        (PMAP, ["sharding", 0], {}, "bad-state", 'PmapSharding.sharding[0]: null, {"chunked"'),
        (PMAP, ["sharding", 0], {"chunked": ["4"]}, "bad-state", "PmapSharding.sharding[0]."
         "chunked[0]: a whole number is needed, not the text '4'"),
        (PMAP, ["mesh_mapping", 1, "sharded_axis"], 1, "bad-spec", "PmapSharding.mesh_mapping: "),
        (PMAP, ["mesh_mapping", 1], None, "bad-state", "PmapSharding.mesh_mapping[1]: an object"),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_place(state, path, value, slug, message):
    damaged = changed(state, path, value)
    for load in (
        lambda: persistence.restore(damaged),
        lambda: from_json(json.dumps(damaged)),
        lambda: pickle.loads(pickle.dumps(Pickled(damaged))),
    ):
        with pytest.raises(ShardingError) as caught:
            load()
        assert caught.value.slug == slug
        assert message in str(caught.value)


class Pickled:
    """What is pickled as a mesh or sharding is, of a state of any kind."""

    def __init__(self, state):
        self.state = state

    def __reduce__(self):
        return persistence.restore, (self.state,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: no JSON: Expecting value"),
        ('{"class": "Mesh",\n "version": 1,\n "axes" [["x", 2]]}', "line 3, column 9: no JSON"),
        ('{"class": "Mesh", "class": "Mesh"}', "the key 'class' stands twice in one object"),
        ('{"class": "Mesh", "version": 1, "axes": [["x", NaN]], "axis_types": ["Auto"]}',
         "Mesh.axes[0][1]: a whole number is needed, not the number nan"),
        ('{"class": "Mesh", "version": 1, "axes": [["x", 1e400]], "axis_types": ["Auto"]}',
         "not the number inf"),
        ("[" * 100_000, "no saved state is nested so deeply"),
        (f'{{"version": {"9" * 5000}}}', "no saved state: Exceeds the limit (4300 digits)"),
        ("[]", "saved state: an object is needed, not list"),
        ("null", "saved state: an object is needed, not NoneType"),
        ('"Mesh"', "saved state: an object is needed, not str"),
        ("{}", "saved state: the key 'class' is missing (to_json and pickle write it)"),
    ],
)  # fmt: skip
def test_text_that_is_no_saved_state(text, message):
    with pytest.raises(ShardingError) as caught:
        from_json(text)
    assert caught.value.slug == "bad-state"
    assert message in str(caught.value)


def test_the_line_of_a_fault_in_the_text_is_shown():
    with pytest.raises(ShardingError) as caught:
        from_json('{"class": "Mesh",\n "version": 1,\n "axes" [["x", 2]]}')
    assert '"axes" [["x", 2]]}\n' in str(caught.value)
    assert caught.value.diagnostic.excerpt.column == 9


@pytest.mark.parametrize("text", [b"{}", None, {}, 3])
def test_what_is_no_text(text):
    with pytest.raises(ShardingError, match=f"not {type(text).__name__}") as caught:
        from_json(text)
    assert caught.value.slug == "abstract-type"


def test_a_kind_of_reduction_that_an_older_jax_lacks():
    state = {**SPEC, "unreduced": ["a"], "unreduced_kind": "max"}
    kinds = getattr(jax.sharding, "UnreducedKind", None)
    if kinds is not None:
        assert persistence.restore(state).unreduced_kind is kinds.max
        return
    with pytest.raises(ShardingError, match="kind of reduction 'max' is unknown to jax"):
        persistence.restore(state)


def test_more_devices_than_a_named_sharding_can_have():
    mesh = {"axes": [["x", 2**31]], "axis_types": ["Auto"]}
    assert persistence.restore({"class": "Mesh", "version": 1, **mesh}).size == 2**31
    with pytest.raises(ShardingError, match=r"2147483648 devices, and JAX's .* to 2147483647"):
        persistence.restore({**NAMED, "mesh": mesh})


# Any damage at all ----------------------------------------------------------------------------

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["x", "Auto", "cpu", "0..7", "Mesh", "device", 2, 8, 10**30, {}, []]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["class", "axes", "ids", "chunked"]), inner, max_size=2)
    ),
    max_leaves=4,
)
strange = st.sampled_from([b"x", (1, 2), {1, 2}, 1j, object(), int])


def places(value, path=()):
    """The paths of all values within ``value``."""
    yield path
    items = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else items:
        yield from places(inner, (*path, key))


def loads_or_says_why(load, state):
    """Nothing else happens: no other exception, and nothing that cannot be saved again."""
    try:
        found = load(state)
    except ShardingError:
        return
    assert from_json(to_json(found)) == found


@given(st.data())
def test_any_damage_is_an_error_or_another_value(data):
    """Of the saved examples, at any place, by any value: from JSON and from a pickle's state."""
    state = json.loads(to_json(data.draw(st.sampled_from(list(everything().values())))))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in places(state) if path]))
        state = changed(state, path, data.draw(st.just(GONE) | values))
        if len(state) < 2:
            break
    loads_or_says_why(from_json, json.dumps(state))
    if list(places(state)) != [()]:
        path = data.draw(st.sampled_from([path for path in places(state) if path]))
        loads_or_says_why(persistence.restore, changed(state, path, data.draw(strange)))


@given(st.data())
def test_any_damage_of_the_text_is_an_error_or_another_value(data):
    text = to_json(data.draw(st.sampled_from(list(everything().values()))))
    start = data.draw(st.integers(0, len(text)))
    end = min(len(text), start + data.draw(st.integers(0, 5)))
    put = data.draw(st.text(max_size=3) | st.sampled_from(list(text)))
    loads_or_says_why(from_json, text[:start] + put + text[end:])
