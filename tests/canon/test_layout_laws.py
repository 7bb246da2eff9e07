"""Device orders as strides: canonical, invertible, and the same ids as numpy's."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import factorisations, tile_assignments

from shardpass.canon import TileAssignment, layout

ORDERS = (
    st.integers(1, 96)
    .flatmap(factorisations)
    .flatmap(lambda dims: st.tuples(st.just(dims), st.permutations(range(len(dims)))))
)


@given(ORDERS)
def test_modes_expand_to_what_numpy_transposes(order: tuple[list[int], list[int]]):
    dims, perm = order
    expected = np.arange(math.prod(dims)).reshape(dims).transpose(perm).ravel()
    assert layout.expand(layout.of_iota(dims, perm)).tolist() == expected.tolist()


@given(ORDERS)
def test_canonical_iota_says_the_same_in_no_more_dimensions(order: tuple[list[int], list[int]]):
    modes = layout.of_iota(*order)
    dims, perm = layout.to_iota(modes)
    assert np.array_equal(layout.expand(layout.of_iota(dims, perm)), layout.expand(modes))
    assert len(dims) <= len(order[0])
    assert layout.to_iota(layout.of_iota(dims, perm)) == (dims, perm)


@given(ORDERS)
def test_a_list_of_an_iota_is_recognised_as_it(order: tuple[list[int], list[int]]):
    modes = layout.of_iota(*order)
    assert layout.of_list(layout.expand(modes)) == layout.coalesce(modes)


@given(st.permutations(range(8)))
def test_a_list_is_recognised_only_if_some_iota_gives_it(ids: list[int]):
    """Oracle: all iotas of eight devices, tried one by one."""
    assert (layout.of_list(np.array(ids)) is not None) == (tuple(ids) in ALL_IOTAS_OF_EIGHT)


ALL_IOTAS_OF_EIGHT = {
    tuple(np.arange(8).reshape(dims).transpose(perm).ravel().tolist())
    for dims, perms in {
        (8,): [(0,)],
        (2, 4): [(1, 0)],
        (4, 2): [(1, 0)],
        (2, 2, 2): [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)],
    }.items()
    for perm in perms
}


@given(ORDERS, st.data())
def test_split_groups_are_the_digits_of_the_ids(
    order: tuple[list[int], list[int]], data: st.DataObject
):
    """Each group alone counts one digit; added up, with the others at zero, they are the ids."""
    modes = layout.of_iota(*order)
    sizes = data.draw(factorisations(math.prod(order[0])))
    groups = layout.split(modes, sizes)
    if groups is None:
        return
    digits = [layout.expand(group) for group in groups]
    assert [len(digit) for digit in digits] == sizes
    total = np.zeros(1, dtype=np.int64)
    for digit in digits:
        total = (total[:, None] + digit).ravel()
    assert np.array_equal(total, layout.expand(modes))


@settings(max_examples=60)
@given(tile_assignments(), st.data())
def test_transposed_is_numpys_transpose(tile: TileAssignment, data: st.DataObject):
    order = data.draw(st.permutations(range(len(tile.dims))))
    assert np.array_equal(
        tile.transposed(order).device_array(), tile.device_array().transpose(order)
    )


@settings(max_examples=60)
@given(tile_assignments())
def test_sorted_groups_are_numpys_sort(tile: TileAssignment):
    expected = np.sort(tile.device_array(), axis=-1)
    assert np.array_equal(tile.with_sorted_last().device_array(), expected)


@settings(max_examples=100)
@given(tile_assignments(max_devices=12), tile_assignments(max_devices=12))
def test_equal_means_the_same_array(a: TileAssignment, b: TileAssignment):
    same = a.dims == b.dims and np.array_equal(a.device_array(), b.device_array())
    assert (a == b) == same
    if same:
        assert hash(a) == hash(b)


@given(tile_assignments())
def test_a_list_equals_the_iota_that_it_spells_out(tile: TileAssignment):
    listed = TileAssignment.listed(tile.dims, tile.flat_devices())
    assert listed == tile
    assert hash(listed) == hash(tile)
    assert {listed: "found"}[tile] == "found"
