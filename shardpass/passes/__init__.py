"""Passes over StableHLO modules, and the pipelines that run them.

A pass is a frozen dataclass with a name; its fields are its options
(:class:`~shardpass.passes.base.Pass`). A pipeline is a text
(``sp-annotate{rules=r.toml},sp-propagate,sp-export-mhlo``), or passes in a list. Our Python passes
and the C++ passes of Shardy and StableHLO run in one MLIR pass manager, in order, with MLIR's
verifier behind each; which op a native pass runs on is looked up, so nobody has to nest.

Passes do no algebra: they read attributes into :mod:`shardpass.canon`, decide in plain Python and
write back. They report to a sink and go on; the pipeline stops behind the first pass that reported
an error. ``run_pipeline`` works on a clone, so a failure leaves the caller's module as it was.

Adding a pass means adding one module to this package: the registry finds it, the command line
offers it, and its docstring is its documentation.
"""

from shardpass.passes.base import Look, Pass, Stage, option
from shardpass.passes.pipeline import PipelineResult, build, run_pipeline
from shardpass.passes.pipeline_text import parse_pipeline
from shardpass.passes.registry import builtin_passes

__all__ = [
    "Look",
    "Pass",
    "PipelineResult",
    "Stage",
    "build",
    "builtin_passes",
    "option",
    "parse_pipeline",
    "run_pipeline",
]
