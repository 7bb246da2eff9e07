"""The converters against XLA's own, on a few modules of ``tools/differential.py``."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
COUNT = 40


def test_nothing_differs_but_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    import differential

    found, counted = differential.run(0, COUNT)
    assert [d for d in found if d.kind not in differential.KNOWN] == []
    assert counted["export: modules"] == counted["export: alike"] == COUNT
    assert counted["round trip: modules"] == counted["round trip: alike"] == COUNT
    # XLA's importer dies of tuples and of orders of devices that no formula has.
    assert counted["import: XLA aborts or gives nothing"] <= COUNT // 2
    assert counted["import: alike"] >= COUNT * 3 // 4


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sharding that is another, one that is missing, and another mesh."""
    monkeypatch.syspath_prepend(str(TOOLS))
    import differential

    text = (
        'sdy.mesh @mesh = <["x"=2, "y"=4]>\n'
        'func.func public @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, '
        "{}]>}) -> tensor<8x8xf32> {\n"
        '  %0 = sdy.sharding_constraint %a <@mesh, [{"y"}, {?}]> : tensor<8x8xf32>\n'
        "  return %0 : tensor<8x8xf32>\n}\n"
    )
    (answer,) = differential.ask([text], "export")
    assert answer is not None
    assert list(differential.compare_exports(0, text, answer)) == []
    assert list(differential.compare_round_trips(0, text, answer)) == []

    another = answer.replace("{devices=[2,1,4]<=[8] last", "{devices=[1,2,4]<=[8] last")
    assert kinds(differential.compare_exports(0, text, another)) == ["another argument"]
    missing = answer.replace("mhlo.sharding", "mhlo.other")
    found = kinds(differential.compare_exports(0, text, missing))
    assert found == ["another argument", "another constraints"]
    closed = answer.replace(", {?}]", ", {}]")
    assert kinds(differential.compare_round_trips(0, text, closed)) == ["another rest"]

    plain = (
        "module attributes {mhlo.num_partitions = 8 : i32} {\nfunc.func @main(%a: tensor<8x8xf32> "
        '{mhlo.sharding = "{devices=[4,2]<=[8]}"}) {\n  return\n}\n}\n'
    )
    assert kinds(differential.compare_imports(0, plain, text)) == [
        "another argument",
        "another rest",
    ]
    assert kinds(differential.compare_imports(0, plain, None)) == []


def kinds(found: Iterable[Any]) -> list[str]:
    return [difference.kind for difference in found]


def test_help() -> None:
    run = subprocess.run(
        [sys.executable, str(TOOLS / "differential.py"), "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0
    assert "--seed" in run.stdout
