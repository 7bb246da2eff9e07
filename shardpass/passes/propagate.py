"""``sp-propagate``: Shardy's propagation, and a word where it is silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func

from shardpass.canon import TensorSharding
from shardpass.diagnostics import Sink, human_bytes
from shardpass.mlir import (
    SDY_SHARDING,
    EntryValue,
    Shardings,
    argument_attributes,
    arguments_of,
    is_public,
    locate,
    operations,
    result_attributes,
    results_of,
)
from shardpass.mlir.element_types import tensor_bytes
from shardpass.passes.base import Pass, Stage, option
from shardpass.passes.expansion import expand, set_option, without
from shardpass.passes.option_text import one_of

_PIPELINE = "sdy-propagation-pipeline"
_MOST_INNER_VALUES = 5


@dataclass(frozen=True, kw_only=True)
class Propagate(Pass):
    """Run Shardy's propagation, and warn where it would say nothing.

    Shardings spread from arguments, results and constraints through the whole module; where an op
    needs its operands laid out otherwise, Shardy writes an ``sdy.reshard``.

    Warned of: a user's uneven sharding that Shardy rewrites, ops whose operands lie on different
    meshes (propagation stops there), and large values that stay whole on every device.
    Leaves alone: what the user has closed.
    Order: behind ``sp-annotate``; in front of ``sp-export-mhlo``.
    """

    name: ClassVar[str] = "sp-propagate"

    conservative: bool = option(
        False, help="do not split a dimension's axes where an op reshapes it"
    )
    strategy: str = option(
        "aggressive",
        help="how conflicts within an op are resolved: aggressive or basic",
        parse=one_of("aggressive", "basic"),
    )
    op_priority: bool = option(True, help="propagate through elementwise ops first")
    keep_sharding_rules: bool = option(False, help="leave each op's sharding rule on it")
    debug_sharding_origins: bool = option(False, help="note on each op where its axes came from")
    debug_edge_sharding: bool = option(False, help="note on each op which edge brought its axes")
    warn_replicated_bytes: int = option(
        64_000_000, help="warn of whole values of this size and more; 0 for none"
    )

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Not used: propagation is C++, see :meth:`stages`."""
        raise NotImplementedError

    def stages(self) -> Sequence[Stage]:
        """A look at what the user asked for, Shardy's passes, a look at what became of it."""
        asked: dict[str, dict[int, TensorSharding]] = {}
        wanted: dict[str, dict[int, TensorSharding]] = {}

        def remember(root: ir.Operation, sink: Sink) -> None:
            shardings = Shardings(root)
            for function in _entry(root):
                name = function.name.value
                asked[name] = _read(shardings, argument_attributes(function))
                wanted[name] = _read(shardings, result_attributes(function))

        def look_back(root: ir.Operation, sink: Sink) -> None:
            shardings = Shardings(root)
            for function in _entry(root):
                name = function.name.value
                _warn_of_uneven(
                    arguments_of(function),
                    asked.get(name, {}),
                    _read(shardings, argument_attributes(function)),
                    sink,
                )
                _warn_of_uneven(
                    results_of(function),
                    wanted.get(name, {}),
                    _read(shardings, result_attributes(function)),
                    sink,
                )
                if any(mesh.size > 1 for mesh in shardings.meshes.values()):
                    self._warn_of_replicated(function, shardings, sink)
            if len(shardings.meshes) > 1:
                _warn_of_meshes(root, shardings, sink)

        return (remember, self.native_pipeline(), look_back)

    def native_pipeline(self) -> str:
        """The C++ passes as MLIR's pipeline text.

        Most options belong to single passes inside Shardy's pipeline and not to the pipeline, so
        that it is expanded as soon as one of them differs from its default.
        """
        changed = {
            key: value
            for key, value, default in (
                ("conservative-propagation", self.conservative, False),
                ("propagation-strategy", self.strategy, "aggressive"),
                ("run-op-priority-propagation", self.op_priority, True),
                ("debug-sharding-origins", self.debug_sharding_origins, False),
                ("debug-propagation-edge-sharding", self.debug_edge_sharding, False),
                ("sink-debug-sharding-origins", self.debug_sharding_origins, False),
                ("sink-debug-propagation-edge-sharding", self.debug_edge_sharding, False),
            )
            if value != default
        }
        if not changed and not self.keep_sharding_rules:
            return _PIPELINE
        elements = expand(_PIPELINE)
        for key, value in changed.items():
            text = str(value).lower() if isinstance(value, bool) else value
            elements = set_option(elements, key, text)
        if self.keep_sharding_rules:
            elements = without(elements, "sdy-drop-sharding-rules")
        return ",".join(elements)

    def _warn_of_replicated(self, function: func.FuncOp, shardings: Shardings, sink: Sink) -> None:
        least = self.warn_replicated_bytes
        if not least:
            return
        for values, attributes in (
            (arguments_of(function), argument_attributes(function)),
            (results_of(function), result_attributes(function)),
        ):
            placed = _read(shardings, attributes)
            for value in values:
                size = tensor_bytes(value.type)
                if size >= least and _is_whole(placed.get(value.index)):
                    sink.warning(
                        "replicated",
                        f"{value}, {human_bytes(size)}, stays whole on every device",
                        path=value.path,
                        help="give it a rule, or raise warn-replicated-bytes",
                    )
        inner = [
            (size, op)
            for op in operations(function)
            if len(op.results) and (size := _whole_bytes(op, shardings)) >= least
        ]
        inner.sort(key=lambda found: -found[0])
        for size, op in inner[:_MOST_INNER_VALUES]:
            sink.warning(
                "replicated",
                f"the result of {op.operation.name}, {human_bytes(size)}, stays whole on "
                "every device",
                location=locate(op),
                notes=(
                    [f"{len(inner) - _MOST_INNER_VALUES} more values of this size are left out"]
                    if len(inner) > _MOST_INNER_VALUES and op is inner[_MOST_INNER_VALUES - 1][1]
                    else []
                ),
                help="constrain it with an op or loc rule",
            )


def _entry(root: ir.Operation) -> list[func.FuncOp]:
    """The public functions: what a user annotates."""
    return [
        op
        for op in root.regions[0].blocks[0].operations
        if isinstance(op, func.FuncOp) and not op.is_external and is_public(op)
    ]


def _read(shardings: Shardings, attributes: list[ir.DictAttr]) -> dict[int, TensorSharding]:
    return {
        index: shardings.read(entries[SDY_SHARDING])
        for index, entries in enumerate(attributes)
        if SDY_SHARDING in entries
    }


def _warn_of_uneven(
    values: list[EntryValue],
    before: dict[int, TensorSharding],
    after: dict[int, TensorSharding],
    sink: Sink,
) -> None:
    for value in values:
        old, new = before.get(value.index), after.get(value.index)
        if old is None or new is None or not value.is_tensor:
            continue
        for dimension, (size, pieces) in enumerate(zip(value.shape, old.tiles(), strict=True)):
            if size % pieces and new.dims[dimension].axes != old.dims[dimension].axes:
                sink.warning(
                    "uneven-rewritten",
                    f"{value}, dimension {dimension}: {size} elements into {pieces} pieces is "
                    f"uneven, and Shardy makes {new.dims_text()} of {old.dims_text()}",
                    path=value.path,
                    help=f"pad to {size + -size % pieces}, or drop an axis",
                )


def _is_whole(sharding: TensorSharding | None) -> bool:
    return sharding is None or (sharding.is_fully_replicated and not sharding.mesh.is_maximal)


def _whole_bytes(op: ir.OpView, shardings: Shardings) -> int:
    """The bytes of the largest result of ``op`` that no axis cuts."""
    if isinstance(op, func.FuncOp):
        return 0
    attributes = op.attributes
    if SDY_SHARDING not in attributes:
        # Ops inside a reduction's body carry none; they are scalars, and so come out as small.
        return max(tensor_bytes(result.type) for result in op.results)
    placed = shardings.read_per_value(attributes[SDY_SHARDING])
    return max(
        (
            tensor_bytes(result.type)
            for result, sharding in zip(op.results, placed, strict=False)
            if _is_whole(sharding)
        ),
        default=0,
    )


def _warn_of_meshes(root: ir.Operation, shardings: Shardings, sink: Sink) -> None:
    placed = _Placed(shardings)
    for op in operations(root):
        if isinstance(op, func.FuncOp) or len(op.operands) < 2:
            continue
        meshes = {
            sharding.mesh: operand
            for operand in op.operands
            if (sharding := placed.sharding_of(operand)) and not sharding.is_fully_replicated
        }
        if len(meshes) > 1:
            sink.warning(
                "propagation-stopped",
                f"propagation stops at {op.operation.name}: its operands lie on different meshes, "
                + " and ".join(f"({mesh.describe()})" for mesh in meshes),
                location=locate(op),
                help="put both on one mesh",
            )


class _Placed:
    """The shardings of values by what they come from."""

    def __init__(self, shardings: Shardings) -> None:
        self._shardings = shardings
        # A list of attributes is made anew by each asking, and a function has many uses of its
        # arguments.
        self._arguments: dict[str, dict[int, TensorSharding]] = {}

    def sharding_of(self, value: ir.Value) -> TensorSharding | None:
        owner = value.owner
        if isinstance(owner, ir.Block):
            function = owner.owner
            if not isinstance(function, func.FuncOp):
                return None
            name = function.name.value
            if name not in self._arguments:
                self._arguments[name] = _read(self._shardings, argument_attributes(function))
            return self._arguments[name].get(ir.BlockArgument(value).arg_number)
        if SDY_SHARDING not in owner.attributes:
            return None
        placed = self._shardings.read_per_value(owner.attributes[SDY_SHARDING])
        return placed[ir.OpResult(value).result_number]
