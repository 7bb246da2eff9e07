"""A mesh as it is typed on a command line."""

import pytest

from shardpass.canon import MeshShape
from shardpass.diagnostics import ShardingError
from shardpass.partition_rules.mesh_text import parse_mesh
from shardpass.partition_rules.spec import SubAxis


@pytest.mark.parametrize("text", ["data=2,model=4", " data = 2 , model = 4 "])
def test_name_and_size(text: str) -> None:
    assert parse_mesh(text) == MeshShape.of(data=2, model=4)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("data=2,model", "expected an axis as name=size", 8),
        ("data=2;model=4", "expected a comma or the end", 7),
        ("data=\N{FULLWIDTH DIGIT TWO}", "expected an axis as name=size", 1),
        ("data=2\N{FULLWIDTH DIGIT TWO}", "expected a comma or the end", 7),
        ("data=\N{ARABIC-INDIC DIGIT TWO}", "expected an axis as name=size", 1),
    ],
)
def test_what_is_no_mesh(text: str, message: str, column: int) -> None:
    with pytest.raises(ShardingError) as caught:
        parse_mesh(text)
    shown = caught.value.diagnostic
    assert shown.excerpt is not None
    assert (shown.slug, shown.message, shown.excerpt.column) == ("bad-mesh", message, column)


def test_only_ascii_digits_make_a_sub_axis() -> None:
    assert SubAxis.parse("x:(1)2") == SubAxis("x", 1, 2)
    strange = "x:(1)\N{FULLWIDTH DIGIT TWO}"
    assert SubAxis.parse(strange) == SubAxis(strange)
