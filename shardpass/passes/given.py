"""Options that are given beside a pipeline, for whichever of its passes take them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.passes.base import Pass

Step = TypeVar("Step", Pass, str, Pass | str)


def fill_in(
    steps: Sequence[Step], given: Mapping[str, Any], *, spelling: str = "{}="
) -> list[Step]:
    """``steps`` with what was given put into each pass that has such an option and not set it.

    Args:
      steps: passes, and MLIR's text for native ones.
      given: values by the name of the option's field; ``None`` for one that was not given.
      spelling: how whoever gave them writes an option, with braces for its name.

    Raises:
      ShardingError: ``bad-pipeline`` for each value that would change nothing: no pass takes it, or
        every pass that does has one of its own.
    """
    values = {name: value for name, value in given.items() if value is not None}
    faults = [fault for name in values if (fault := _fault(steps, name, spelling))]
    if faults:
        raise ShardingError.of(faults)
    return [_filled(step, values) for step in steps]


def _fault(steps: Sequence[Step], name: str, spelling: str) -> Diagnostic | None:
    takers = [step for step in steps if isinstance(step, Pass) and _takes(step, name)]
    if any(getattr(step, name) is None for step in takers):
        return None
    option = spelling.format(name)
    if not takers:
        message = f"{option} is given, and no pass of the pipeline takes it"
        help = f"put a pass into the pipeline that does, like sp-annotate, or leave out {option}"
    else:
        message = f"{option} is given twice: {takers[0].name} has {name} of its own in the pipeline"
        help = "give it in one of the two places"
    return Diagnostic(Severity.ERROR, "bad-pipeline", message, help=help)


def _filled(step: Step, values: Mapping[str, Any]) -> Step:
    if not isinstance(step, Pass):
        return step
    missing = {n: v for n, v in values.items() if _takes(step, n) and getattr(step, n) is None}
    return dataclasses.replace(step, **missing) if missing else step


def _takes(step: Pass, name: str) -> bool:
    return name in {field.name for field in dataclasses.fields(step)}
