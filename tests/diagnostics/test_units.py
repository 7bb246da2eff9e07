"""Figures as people read them."""

from __future__ import annotations

import pytest

from shardpass.diagnostics import human_bytes


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (497_759_232, "474.7 MiB"),
        (3 * 1024**4, "3.0 TiB"),
        (4096 * 1024**4, "4096.0 TiB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_bytes(size) == text
