"""Whose accelerators are whose, on one machine."""

from pathlib import Path

import pytest

from shardpass.runtime.processes.joining import _accelerators


@pytest.fixture
def eight_gpus(tmp_path: Path) -> Path:
    for name in (*(f"nvidia{n}" for n in range(8)), "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    return tmp_path


def test_gpus_are_shared_out(eight_gpus: Path):
    shares = [_accelerators(number, 2, 4, eight_gpus) for number in range(4)]
    assert [list(share or ()) for share in shares] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert list(_accelerators(1, 1, 2, eight_gpus) or ()) == [1]


@pytest.mark.parametrize(("share", "count"), [(3, 3), (1, 9)])
def test_there_are_none_for_anybody_where_there_are_too_few(
    share: int, count: int, eight_gpus: Path
):
    assert _accelerators(0, share, count, eight_gpus) is None
