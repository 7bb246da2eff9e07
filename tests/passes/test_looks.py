"""Steps that change nothing run beside those that do, on modules that MLIR has verified."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
from jax.extend.mlir import ir

from shardpass.diagnostics import ShardingError, Sink
from shardpass.mlir import entry_function, load
from shardpass.passes import Look, Pass, Stage, option, run_pipeline

TEXT = """\
func.func @main(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  return %a : tensor<8x8xf32>
}
"""

seen: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def attributes(root: ir.Operation) -> list[str]:
    return [name for name in root.attributes if name.startswith("acme.")]


@dataclass(frozen=True, kw_only=True)
class Watch(Pass):
    """Note which marks the module has."""

    name: ClassVar[str] = "acme-watch"

    before_verifier: bool = option(False, help="whether an unverified module will do")

    def stages(self) -> Sequence[Stage]:
        return (Look(self.run, before_verifier=self.before_verifier),)

    def run(self, root: ir.Operation, sink: Sink) -> None:
        seen.append(f"watch {attributes(root)}")


@dataclass(frozen=True, kw_only=True)
class Mark(Pass):
    """Put a mark onto the module."""

    name: ClassVar[str] = "acme-mark"

    mark: str = option("acme.a", help="which")

    def run(self, root: ir.Operation, sink: Sink) -> None:
        seen.append(f"mark {self.mark}")
        root.attributes[self.mark] = ir.UnitAttr.get(context=root.context)


@dataclass(frozen=True, kw_only=True)
class Break(Pass):
    """Give the entry function a type that does not fit its body."""

    name: ClassVar[str] = "acme-break"

    def run(self, root: ir.Operation, sink: Sink) -> None:
        seen.append("break")
        with root.context:
            kind = ir.TypeAttr.get(ir.FunctionType.get([], []))
            entry_function(root).attributes["function_type"] = kind


@dataclass(frozen=True, kw_only=True)
class Refuse(Pass):
    """Look, and find an error."""

    name: ClassVar[str] = "acme-refuse"

    def stages(self) -> Sequence[Stage]:
        return (Look(self.run),)

    def run(self, root: ir.Operation, sink: Sink) -> None:
        sink.error("acme/refused", "not this one")


def test_each_step_sees_what_the_ones_before_it_left() -> None:
    steps = [Watch, Mark, Watch(before_verifier=True), "cse", Watch, Mark(mark="acme.b"), Watch]
    result = run_pipeline(TEXT, steps)
    assert seen == [
        "watch []",
        "mark acme.a",
        "watch ['acme.a']",
        "watch ['acme.a']",
        "mark acme.b",
        "watch ['acme.a', 'acme.b']",
    ]
    assert attributes(result.module.root) == ["acme.a", "acme.b"]


def test_edits_behind_each_other_are_verified_one_by_one() -> None:
    with pytest.raises(ShardingError, match="entry block must have 0 arguments"):
        run_pipeline(TEXT, [Break, Mark])
    assert seen == ["break"]


def test_a_look_sees_verified_modules_alone() -> None:
    with pytest.raises(ShardingError, match="entry block must have 0 arguments"):
        run_pipeline(TEXT, [Break, Watch])
    assert seen == ["break"]


def test_a_look_may_cope_with_others() -> None:
    with pytest.raises(ShardingError, match="entry block must have 0 arguments"):
        run_pipeline(TEXT, [Break, Watch(before_verifier=True)])
    assert seen == ["break", "watch []"]


def test_an_error_in_a_look_stops_the_edit_behind_it() -> None:
    module = load(TEXT)
    with pytest.raises(ShardingError, match="not this one"):
        run_pipeline(module, [Watch, Refuse, Mark], in_place=True)
    assert seen == ["watch []"]
    assert attributes(module.root) == []
