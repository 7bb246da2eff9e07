"""What to do about the faults that Shardy and MLIR find themselves.

Their verifiers say what is wrong and where, not what to do. Each entry is a regex on the message
and a remedy; the wording of both supported jaxlibs was read for it.
"""

from __future__ import annotations

import re
from typing import Final

_REMEDIES: Final[tuple[tuple[str, str], ...]] = (
    (r"unknown mesh: @", 'declare it in the module: sdy.mesh @name = <["x"=2, "y"=4]>'),
    (r"unknown axis name", "use an axis of the mesh that the sharding names"),
    (r"duplicate axis name", "give each axis of the mesh a name of its own"),
    (r"axis size must be at least 1", "an axis has one device or more"),
    (r"sorted device ids must be iota", "device_ids lists every device from 0 once"),
    (r"duplicate axis ref", "an axis can be used once: drop it from the other places"),
    (
        r"doesn't match tensor rank",
        "give the sharding one entry for each dimension, {} for one that is not cut",
    ),
    (r"equal to the full axis size", "write the axis without the (pre)size behind it"),
    (r"sub-axis next pre-size", 'in "x":(pre)size, pre * size has to divide the axis'),
    (r"consecutive sub-axes can be merged", "write the two as one sub-axis"),
    (r"not ordered w\.r\.t\. mesh", "list replicated and unreduced axes in the mesh's order"),
    (r"empty and closed but has a priority", "a priority needs an axis, or an open dimension"),
    (
        r"should have a sharding attribute of type",
        "ops carry #sdy.sharding_per_value<[<@mesh, [...]>]>, arguments and results #sdy.sharding",
    ),
    (r"shardings don't match number of values", "give one sharding for each result"),
    (
        r"only supports ranked tensors with a static shape",
        "export the module for concrete shapes, or refine them first: "
        "stablehlo-refine-arguments, stablehlo-refine-shapes",
    ),
    (
        r"op 'chlo\.\w+' is unknown to SDY sharding rule registry",
        "propagation stops at this op; expand it first: "
        "--pipeline chlo-legalize-to-stablehlo,sp-annotate,sp-propagate",
    ),
    (
        r"unknown to SDY sharding rule registry",
        "propagation stops at this op; constrain its result with an op or loc rule",
    ),
    (
        r"expected a value ref to have an operand index in range",
        "jaxlib 0.10's Shardy cannot note edges in a module with loops: leave out "
        "debug-edge-sharding",
    ),
    (
        r"unregistered dialect|Dialect `[^']+' not found",
        "shardpass reads StableHLO, CHLO, Shardy and MLIR's own dialects",
    ),
)
_COMPILED: Final = tuple((re.compile(pattern), remedy) for pattern, remedy in _REMEDIES)


def remedy_for(message: str) -> str | None:
    """What to do about a message of MLIR's, where that is known."""
    return next((remedy for pattern, remedy in _COMPILED if pattern.search(message)), None)
