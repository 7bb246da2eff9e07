"""Rows of numbered layers shown as one, never saying more or less than the long list."""

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from shardpass.report import ValueRow, fold


def row(index: int, path: str, spec: str = "[{}]") -> ValueRow:
    return ValueRow(index, path, "f32", (8,), spec, "mesh", (8,), 32, 32)


def folded(*paths: str) -> list[str]:
    return [one.path for one in fold([row(i, path) for i, path in enumerate(paths)])]


def unbraced(text: str) -> list[str]:
    """All paths that a path with braces stands for."""
    parts = re.split(r"\{([^}]*)\}", text)
    choices = [
        [part]
        if i % 2 == 0
        else [str(n) for n in range(int(part.split("..")[0]), int(part.split("..")[1]) + 1)]
        if ".." in part
        else part.split(",")
        for i, part in enumerate(parts)
    ]
    return ["".join(choice) for choice in itertools.product(*choices)]


def test_layers_fold() -> None:
    assert folded("h.0.fc", "h.1.fc", "h.2.fc", "wte") == ["h.{0..2}.fc", "wte"]


def test_layers_in_between_others_keep_their_place() -> None:
    paths = [f"h.{i}.{name}" for i in range(12) for name in ("fc", "proj")]
    assert folded("wte", *paths) == ["wte", "h.{0..11}.fc", "h.{0..11}.proj"]


def test_other_numbers() -> None:
    assert folded("layers_0.w", "layers_2.w", "layers_10.w") == ["layers_{0,2,10}.w"]
    assert folded("a.0", "a.1") == ["a.{0,1}"]
    assert folded("a.1", "a.01") == ["a.{01,1}"]


def test_two_numbers_fold_where_all_combinations_are_there() -> None:
    paths = [f"s.{i}.h.{j}" for i in range(2) for j in range(3)]
    assert folded(*paths) == ["s.{0,1}.h.{0..2}"]
    assert folded(*paths[:-1]) == ["s.0.h.{0..2}", "s.1.h.{0,1}"]


def test_another_layout_stands_alone() -> None:
    rows = [row(0, "h.0"), row(1, "h.1", '[{"x"}]'), row(2, "h.2")]
    assert [(one.path, one.example.spec) for one in fold(rows)] == [
        ("h.{0,2}", "[{}]"),
        ("h.1", '[{"x"}]'),
    ]


def test_one_path_twice_is_shown_twice() -> None:
    assert folded("h.0", "h.0") == ["h.0", "h.0"]


def test_bytes_are_summed() -> None:
    (one,) = fold([row(i, f"h.{i}") for i in range(4)])
    assert (one.bytes, one.bytes_per_device, len(one.rows)) == (128, 128, 4)


numbered = st.builds("{}.{}.{}".format, st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 3))


@given(st.lists(numbered, unique=True))
def test_unfolding_gives_the_rows_back(paths: list[str]) -> None:
    """Each row in exactly one fold, and no fold stands for a path that is not there."""
    shown = fold([row(i, path) for i, path in enumerate(paths)])
    assert sorted(p for one in shown for p in unbraced(one.path)) == sorted(paths)
    for one in shown:
        assert sorted(r.path for r in one.rows) == sorted(unbraced(one.path))
