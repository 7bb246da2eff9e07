"""The notation that a pipeline has to end in, so that a plan can be read."""

from __future__ import annotations

from shardpass.diagnostics import ShardingError
from shardpass.mlir import MHLO_SHARDING, Module, argument_attributes, result_attributes


def refuse_gspmd(module: Module) -> None:
    """Refuse a module whose arguments or results are annotated as GSPMD reads it.

    Raises:
      ShardingError: ``bad-pipeline``.
    """
    main = module.main
    if any(MHLO_SHARDING in e for e in (*argument_attributes(main), *result_attributes(main))):
        raise ShardingError(
            "bad-pipeline",
            "the pipeline ends in GSPMD's notation, and a plan is read in Shardy's",
            help='leave out sp-export-mhlo; as_text(notation="mhlo") shows what it would say',
        )
