"""Right answers, a JSON object a line; README.md says where each file's values come from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]
_FOLDER = Path(__file__).parent


def load(name: str, wanted: Callable[[Row], bool] = lambda row: True) -> list[Row]:
    """The rows of ``<name>.jsonl`` that are ``wanted``, in the order of the file."""
    lines = (_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if wanted(row)]


def each(name: str, wanted: Callable[[Row], bool] = lambda row: True) -> pytest.MarkDecorator:
    """Run a test once for each such row; the test's id is the row's."""
    rows = load(name, wanted)
    return pytest.mark.parametrize("row", rows, ids=[row["id"] for row in rows])
