"""Every row of XLA's export of Shardy shardings: V2 text, V3 text read back, placement."""

import pytest
from cases import Row, each

from shardpass.canon import (
    HloSharding,
    MeshShape,
    TensorSharding,
    from_hlo,
    is_equivalent,
    manual_axes,
    to_hlo,
)
from shardpass.diagnostics import ShardingError


def is_single(row: Row) -> bool:
    return row["tier"] == "core" and "sharding" in row


def read(row: Row) -> TensorSharding:
    return TensorSharding.parse(row["sharding"], {"mesh": MeshShape.parse(row["mesh"])})


@each("sdy_to_mhlo", is_single)
def test_lowers_as_xla_exports(row: Row):
    lowered = to_hlo(read(row), row["manual_axes"])
    assert str(lowered) == row["mhlo"]
    if "mhlo_with_metadata_0.12" in row:
        assert lowered.to_text(metadata=True) == row["mhlo_with_metadata_0.12"]
    if lowered.tile is not None:
        assert list(lowered.tile_dims) == row["tile_dims"]
        shown = [d for d in row["devices"] if d != "..."]
        assert lowered.tile.flat_devices().tolist()[: len(shown)] == shown


@each("sdy_to_mhlo", is_single)
def test_prints_shardy_text_as_it_was_read(row: Row):
    assert read(row).to_sdy("mesh") == row["sharding"]


@each("sdy_to_mhlo", lambda row: is_single(row) and row["v3"] is not None)
def test_reads_the_named_form_back(row: Row):
    named = HloSharding.parse(row["v3"])
    assert str(named) == row["v3"]
    assert str(named.without_names()) == row["mhlo"]
    assert named == HloSharding.parse(row["mhlo"])
    sharding = read(row)
    rank = 0 if sharding.mesh.is_maximal else sharding.rank
    back = from_hlo(named, rank)
    assert back.closed() == sharding.closed()
    assert [d.open for d in back.dims] == [d.open for d in sharding.dims]


@each("sdy_to_mhlo", is_single)
def test_comes_back_from_its_tiles_on_the_same_mesh(row: Row):
    sharding = read(row)
    lowered = to_hlo(sharding, row["manual_axes"])
    back = from_hlo(lowered, sharding.rank, sharding.mesh)
    manual = manual_axes(lowered, sharding.mesh)
    assert is_equivalent(to_hlo(back, manual), lowered, sharding.rank)


@each("sdy_to_mhlo", lambda row: row["tier"] == "core" and "shardings" in row)
def test_lowers_several_values_to_a_tuple(row: Row):
    meshes = {"mesh": MeshShape.parse(row["mesh"])}
    shardings = [TensorSharding.parse(text, meshes) for text in row["shardings"]]
    assert str(HloSharding.tuple_of([to_hlo(s) for s in shardings])) == row["mhlo"]


@each("sdy_to_mhlo", lambda row: row["tier"] != "core")
def test_refuses_dimensions_on_one_device_as_shardys_verifier_does(row: Row):
    assert row["id"] == "s2m059"
    with pytest.raises(ShardingError) as refused:
        read(row)
    assert refused.value.slug == "rank-mismatch"
