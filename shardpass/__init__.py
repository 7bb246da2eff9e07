"""shardpass: say how tensors are laid out, write it into a StableHLO module, see it and prove it.

The names below are all there is to import for everyday work. Each is fetched from its layer when it
is first asked for: ``import shardpass`` imports nothing but the standard library, the algebra
(:mod:`shardpass.canon`) and the front of the command line run without jax, and a script that only
reads shardings never loads the compiler bindings.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardpass.canon import HloSharding as HloSharding
    from shardpass.canon import MeshShape as MeshShape
    from shardpass.canon import TensorSharding as TensorSharding
    from shardpass.diagnostics import Diagnostic as Diagnostic
    from shardpass.diagnostics import ShardingError as ShardingError
    from shardpass.mlir import Module as Module
    from shardpass.mlir import load as load
    from shardpass.mlir import save as save
    from shardpass.partition_rules import PartitionRules as PartitionRules
    from shardpass.partition_rules import Rule as Rule
    from shardpass.passes import Pass as Pass
    from shardpass.passes import run_pipeline as run_pipeline
    from shardpass.report import build_report as build_report
    from shardpass.report import visualize as visualize
    from shardpass.runtime import check as check
    from shardpass.runtime import compile_module as compile_module
    from shardpass.runtime import constrain as constrain
    from shardpass.runtime import export as export
    from shardpass.runtime import jit as jit
    from shardpass.runtime import pjit as pjit
    from shardpass.runtime import plugin as plugin
    from shardpass.runtime import request_cpu_devices as request_cpu_devices
    from shardpass.runtime import run as run
    from shardpass.sharding import UNCONSTRAINED as UNCONSTRAINED
    from shardpass.sharding import GSPMDSharding as GSPMDSharding
    from shardpass.sharding import Mesh as Mesh
    from shardpass.sharding import NamedSharding as NamedSharding
    from shardpass.sharding import P as P
    from shardpass.sharding import PartitionSpec as PartitionSpec
    from shardpass.sharding import PmapSharding as PmapSharding
    from shardpass.sharding import PositionalSharding as PositionalSharding
    from shardpass.sharding import Sharding as Sharding
    from shardpass.sharding import SingleDeviceSharding as SingleDeviceSharding
    from shardpass.sharding import explain_difference as explain_difference
    from shardpass.sharding import make_mesh as make_mesh

__version__ = "0.1.0"

_LAYER_OF = {
    "UNCONSTRAINED": "sharding",
    "Diagnostic": "diagnostics",
    "GSPMDSharding": "sharding",
    "HloSharding": "canon",
    "Mesh": "sharding",
    "MeshShape": "canon",
    "Module": "mlir",
    "NamedSharding": "sharding",
    "P": "sharding",
    "PartitionRules": "partition_rules",
    "PartitionSpec": "sharding",
    "Pass": "passes",
    "PmapSharding": "sharding",
    "PositionalSharding": "sharding",
    "Rule": "partition_rules",
    "Sharding": "sharding",
    "ShardingError": "diagnostics",
    "SingleDeviceSharding": "sharding",
    "TensorSharding": "canon",
    "build_report": "report",
    "check": "runtime",
    "compile_module": "runtime",
    "constrain": "runtime",
    "explain_difference": "sharding",
    "export": "runtime",
    "jit": "runtime",
    "load": "mlir",
    "make_mesh": "sharding",
    "pjit": "runtime",
    "plugin": "runtime",
    "request_cpu_devices": "runtime",
    "run": "runtime",
    "run_pipeline": "passes",
    "save": "mlir",
    "visualize": "report",
}

__all__ = [
    "UNCONSTRAINED",
    "Diagnostic",
    "GSPMDSharding",
    "HloSharding",
    "Mesh",
    "MeshShape",
    "Module",
    "NamedSharding",
    "P",
    "PartitionRules",
    "PartitionSpec",
    "Pass",
    "PmapSharding",
    "PositionalSharding",
    "Rule",
    "Sharding",
    "ShardingError",
    "SingleDeviceSharding",
    "TensorSharding",
    "build_report",
    "check",
    "compile_module",
    "constrain",
    "explain_difference",
    "export",
    "jit",
    "load",
    "make_mesh",
    "pjit",
    "plugin",
    "request_cpu_devices",
    "run",
    "run_pipeline",
    "save",
    "visualize",
]


def __getattr__(name: str) -> Any:
    layer = _LAYER_OF.get(name)
    if layer is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{layer}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
