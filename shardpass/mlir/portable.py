"""StableHLO's portable artifacts: the versioned form that outlives the compiler that wrote it."""

from __future__ import annotations

from collections import Counter

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardpass.diagnostics import Diagnostic, ShardingError
from shardpass.mlir.errors import hearing
from shardpass.mlir.walk import operations

CUT_SHORT = "it may be cut short, or written by a StableHLO newer than the installed one"


def read(context: ir.Context, data: bytes, name: str) -> ir.Module:
    """The module in an artifact, Shardy's attributes and meshes among it.

    Raises:
      ShardingError: ``unreadable``, with what StableHLO said.
    """
    said: list[Diagnostic] = []
    try:
        with hearing(context, said.append):
            return stablehlo.deserialize_portable_artifact(context, data)
    except ValueError as error:
        raise ShardingError(
            "unreadable",
            f"{name} is a StableHLO artifact that cannot be read",
            notes=[d.message for d in said],
            help=CUT_SHORT,
        ) from error


def write(module: ir.Module, version: str | None, name: str) -> bytes:
    """``module``, which is used up by it, as an artifact of StableHLO ``version``.

    Without a version it is the newest that everything from the last four weeks reads, as in what
    ``jax.export`` writes. Shardy's meshes, shardings and constraints are stored as they are, beside
    the versioned ops: StableHLO's promises of compatibility are not for them.

    Raises:
      ShardingError: ``not-expressible`` for ops that neither StableHLO nor Shardy has, for what is
        newer than ``version``, and for a version that the installed StableHLO does not know.
    """
    context = module.context
    foreign = Counter(
        op.operation.name for op in operations(module.operation) if _is_foreign(op, context)
    )
    if foreign:
        ops = ", ".join(f"{op} ({count})" for op, count in sorted(foreign.items()))
        raise ShardingError(
            "not-expressible",
            f"{name} holds ops that a portable artifact has no form for: {ops}",
            help="write text or bytecode",
        )
    target = version or stablehlo.get_version_from_compatibility_requirement(
        stablehlo.StablehloCompatibilityRequirement.WEEK_4
    )
    said: list[Diagnostic] = []
    try:
        with context, hearing(context, said.append):
            return stablehlo.serialize_portable_artifact(module, target, allow_other_dialects=True)
    except (ValueError, ir.MLIRError) as error:
        raise ShardingError(
            "not-expressible",
            f"{name} cannot be written as an artifact of StableHLO {target}",
            notes=[d.message for d in said],
            help=f"the installed StableHLO writes {stablehlo.get_minimum_version()} to "
            f"{stablehlo.get_current_version()}",
        ) from error


def _is_foreign(op: ir.OpView, context: ir.Context) -> bool:
    name = op.operation.name
    return name.startswith("mhlo.") or not context.is_registered_operation(name)
