"""Meshes that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from shardpass.canon import MeshShape
from shardpass.diagnostics import ShardingError


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (((1, 2),), "the name of a mesh axis is a text, not 1 (size 2)"),
        ((("x", 2.0),), 'the size of mesh axis "x" is a whole number, not 2.0'),
        ((("x", True),), 'the size of mesh axis "x" is a whole number, not True'),
        ((("x", "2"),), "the size of mesh axis \"x\" is a whole number, not '2'"),
        ((("x", 0),), 'axis "x" has size 0, below 1'),
        ((("x", 2), ("x", 4)), 'axis "x" stands 2 times in the mesh x=2, x=4'),
    ],
)
def test_axes_that_cannot_be(axes: Any, message: str) -> None:
    with pytest.raises(ShardingError) as caught:
        MeshShape(axes)
    assert (caught.value.slug, caught.value.diagnostic.message) == ("bad-mesh", message)
