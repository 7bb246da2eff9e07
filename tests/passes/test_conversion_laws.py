"""Laws of the two converters together, on modules that nobody wrote."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jax.extend.mlir.dialects import func, sdy

from shardpass import ShardingError, run_pipeline
from shardpass.canon import HloKind, HloSharding, TensorSharding, is_equivalent, to_hlo
from shardpass.mlir import (
    MHLO_SHARDING,
    Module,
    Shardings,
    argument_attributes,
    load,
    meshes_of,
    operations,
    read_mhlo,
    result_attributes,
)
from shardpass.passes.export_mhlo import ExportMhlo
from shardpass.passes.import_mhlo import ImportMhlo
from shardpass.passes.manual_axes import axes_of

PROJECT = Path(__file__).parents[2]
SEEDS = range(40)


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(PROJECT / "tools"))
    import differential_modules

    return differential_modules


def layouts(module: Module) -> dict[str, list[TensorSharding | HloSharding]]:
    """What is said of every value, in either notation, by the kind of place, in order."""
    shardings = Shardings(module.root)
    found: dict[str, list[TensorSharding | HloSharding]] = {}
    for op in operations(module.root):
        if isinstance(op, func.FuncOp):
            for kind, read in (("argument", argument_attributes), ("result", result_attributes)):
                for index, entries in enumerate(read(op)):
                    place = found.setdefault(f"{kind} {index} of {op.name.value}", [])
                    if "sdy.sharding" in entries:
                        place.append(shardings.read(entries["sdy.sharding"]))
                    if MHLO_SHARDING in entries:
                        place.append(read_mhlo(entries[MHLO_SHARDING]))
        elif isinstance(op, sdy.ShardingConstraintOp):
            if axes_left(op, shardings):
                sharding = shardings.read(op.attributes["sharding"])
                found.setdefault("constraints", []).append(sharding)
        elif isinstance(op, sdy.ManualComputationOp):
            for name in ("in_shardings", "out_shardings"):
                placed = shardings.read_per_value(op.attributes[name])
                found.setdefault(f"{name} of regions", []).extend(placed)
        elif "sdy.sharding" in op.attributes:
            placed = shardings.read_per_value(op.attributes["sdy.sharding"])
            found.setdefault(f"results of {op.attributes['call_target_name']}", []).extend(placed)
    return found


def axes_left(op: Any, shardings: Shardings) -> bool:
    """Whether an axis is left that is not manual; else a constraint says nothing."""
    left = {name for name, size in shardings.read(op.attributes["sharding"]).mesh.axes if size > 1}
    parent = op.operation.parent
    while parent is not None:
        if isinstance(parent.opview, sdy.ManualComputationOp):
            left -= set(axes_of(parent))
        parent = parent.parent
    return bool(left)


def tiles(sharding: TensorSharding | HloSharding) -> HloSharding:
    found = to_hlo(sharding) if isinstance(sharding, TensorSharding) else sharding
    # That a value is open is no part of its layout.
    return HloSharding.replicated() if found.kind is HloKind.UNKNOWN else found


def openness(sharding: TensorSharding | HloSharding) -> list[bool]:
    return [dim.open for dim in sharding.dims] if isinstance(sharding, TensorSharding) else []


def same(before: Module, after: Module, *, constraints_open: bool = True) -> None:
    """The same layout for every value, and the same dimensions open to propagation."""
    first, again = layouts(before), layouts(after)
    assert {place for place, said in first.items() if said} == {
        place for place, said in again.items() if said
    }
    for place, said in first.items():
        assert len(again[place]) == len(said), place
        for one, other in zip(said, again[place], strict=True):
            assert is_equivalent(tiles(one), tiles(other), len(openness(one))), place
            if place == "constraints" and constraints_open:
                assert openness(one) == openness(other)


def exported(module: Any, **options: bool) -> Module:
    return run_pipeline(module, ExportMhlo(**options)).module


def imported(module: Any, **options: Any) -> Module:
    return run_pipeline(module, ImportMhlo(**options)).module


@pytest.mark.parametrize("seed", SEEDS)
def test_import_after_export_is_the_same_for_every_value(modules: Any, seed: int) -> None:
    before = load(modules.shardy_module(random.Random(seed)))
    (mesh,) = meshes_of(before.root).values()
    there = exported(before)
    back = imported(there, mesh=mesh)
    same(before, back)
    again = exported(back)
    assert layouts(again) == layouts(there)
    # From here on nothing changes: a constraint where every axis is manual, which says nothing, is
    # gone.
    assert exported(imported(again.clone(), mesh=mesh)).text() == again.text()
    # There is nothing left to do for either.
    assert imported(back.clone(), mesh=mesh).text() == back.text()
    assert exported(there.clone()).text() == there.text()


@pytest.mark.parametrize("seed", SEEDS)
def test_by_name_no_mesh_has_to_be_given(modules: Any, seed: int) -> None:
    before = load(modules.shardy_module(random.Random(seed)))
    there = exported(before, v3=True)
    back = imported(there)
    said = [s for placed in layouts(before).values() for s in placed]
    if said:
        assert meshes_of(back.root) == meshes_of(before.root)
    same(before, back)
    again = exported(back, v3=True)
    assert layouts(again) == layouts(there)
    assert exported(imported(again.clone()), v3=True).text() == again.text()


@pytest.mark.parametrize("seed", SEEDS)
def test_export_after_import_is_the_same_for_every_value(modules: Any, seed: int) -> None:
    text = modules.gspmd_module(random.Random(seed))
    try:
        there = imported(text)
    except ShardingError as error:
        if error.slug != "not-expressible":  # No mesh has them all.
            raise
        return
    back = exported(there)
    for place, said in layouts(load(text)).items():
        for one, other in zip(said, layouts(back)[place], strict=False):
            assert is_equivalent(tiles(one), tiles(other), 3 if one.rank is None else one.rank)
    if meshes_of(there.root):
        same(there, imported(back.clone()))
    assert imported(there.clone()).text() == there.text()


def test_the_text_is_the_same_in_every_process(modules: Any, tmp_path: Path) -> None:
    """Whatever order Python's sets have there."""
    texts = {
        "--sp-import-mhlo": modules.gspmd_module(random.Random(5)),
        "--sp-export-mhlo": modules.shardy_module(random.Random(5)),
    }
    for option, text in texts.items():
        path = tmp_path / "module.mlir"
        path.write_text(text)
        found = {
            subprocess.run(
                [sys.executable, "-m", "shardpass", "opt", str(path), option],
                capture_output=True,
                check=True,
                env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONHASHSEED": seed},
            ).stdout
            for seed in ("1", "2", "77")
        }
        assert len(found) == 1
