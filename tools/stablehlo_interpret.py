"""Run a StableHLO program that tests itself: ``stablehlo-translate --interpret``, for lit tests.

    python tools/stablehlo_interpret.py FILE          # `-` or nothing: standard input

The function ``main`` takes nothing; what it returns is printed, one value a line. The ops of the
``check`` dialect compare values, and the first that does not hold ends the run with exit status 1,
as does anything that cannot be run. ``interpreter.run_parallel`` runs programs on a grid of
replicas by partitions that talk through collectives.

Each op is run by jaxlib's reference interpreter (``stablehlo.eval_module``). Two things it does not
do itself: jaxlib has no ``check`` dialect, and in some versions it runs no more processes at once
than the machine has cores, so that collectives of more than that wait for each other until it
aborts. So here each process is a thread, and collectives are put together between the threads;
calls and control flow that hold collectives are followed here as well. Infeed, outfeed, send and
recv are refused.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import ChainMap
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path

import numpy as np
from device_grid import Grid, Process, StuckError
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from native_evaluation import evaluate, named_functions, nested
from stablehlo_checks import CHECKS, generic_form
from stablehlo_collectives import COLLECTIVES, InterpretError, Place

from shardpass.mlir.context import make_context

_RETURNS = ("func.return", "stablehlo.return")
_RUN_PARALLEL = "interpreter.run_parallel"
#: A token has no value; it is passed on as a unit.
_TOKEN_MAKERS = ("stablehlo.after_all", "stablehlo.create_token")
_REFUSED = frozenset(f"stablehlo.{name}" for name in ("infeed", "outfeed", "recv", "send"))
_FOLLOWED = frozenset([*COLLECTIVES, *CHECKS, *_REFUSED, _RUN_PARALLEL])

_Values = MutableMapping[ir.Value, ir.Attribute]
_Action = Callable[[ir.OpView, Sequence[ir.Attribute], "Place | None"], list[ir.Attribute]]


class Interpreter:
    """Runs the functions of a module."""

    def __init__(self, module: ir.Module) -> None:
        # Ops do not keep the module alive that they are in.
        self._module = module
        self._functions: dict[str, ir.Operation] = {
            ir.StringAttr(op.attributes["sym_name"]).value: op.operation
            for op in module.body.operations
            if op.operation.name == "func.func"
        }
        self._followed: dict[str, bool] = {}

    def main(self) -> list[ir.Attribute]:
        """What ``main`` returns.

        Raises:
          InterpretError: a check does not hold, or something cannot be run.
          StuckError: processes wait for each other.
          KeyError: there is no ``main`` without arguments.
        """
        main = self._functions.get("main")
        if main is None or len(main.regions[0].blocks[0].arguments):
            raise KeyError("there is no function main that takes nothing")
        return self._call(main, (), None)

    def _call(
        self, function: ir.Operation, arguments: Sequence[ir.Attribute], at: Place | None
    ) -> list[ir.Attribute]:
        return self._region(function.regions[0], arguments, {}, at)

    def _region(
        self,
        region: ir.Region,
        arguments: Sequence[ir.Attribute],
        around: _Values,
        at: Place | None,
    ) -> list[ir.Attribute]:
        """What the region's end returns; ``around`` is what is known where its op stands."""
        block = region.blocks[0]
        values: _Values = ChainMap({}, around)
        values.update(zip(block.arguments, arguments, strict=True))
        for op in block.operations:
            if op.operation.name in _RETURNS:
                return [values[operand] for operand in op.operands]
            values.update(zip(op.results, self._op(op, values, at), strict=True))
        return []

    def _op(self, op: ir.OpView, values: _Values, at: Place | None) -> list[ir.Attribute]:
        name = op.operation.name
        if name.startswith("check.") and name not in CHECKS:
            raise InterpretError(op, f"there is no such check; there are {', '.join(CHECKS)}")
        if name in _TOKEN_MAKERS:
            return [ir.UnitAttr.get(op.context)]
        if not self._is_followed(op):
            return evaluate(op, values, self._functions)
        operands = [values[operand] for operand in op.operands]
        if name in COLLECTIVES:
            if at is None:
                raise InterpretError(op, "stands outside of what interpreter.run_parallel runs")
            return COLLECTIVES[name](op, operands, at)
        if name in CHECKS:
            if fault := CHECKS[name](op, operands):
                raise InterpretError(op, fault)
            return []
        if name == _RUN_PARALLEL:
            return self._run_parallel(op, operands)
        if name == "func.call":
            callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            return self._call(self._functions[callee], operands, at)
        if name == "stablehlo.while":
            return self._while(op, operands, values, at)
        if name in ("stablehlo.if", "stablehlo.case"):
            return self._region(_branch(op, operands[0]), (), values, at)
        what = "is refused" if name in _REFUSED else "holds ops that are not run inside of it"
        raise InterpretError(op, what)

    def _while(
        self,
        op: ir.OpView,
        state: list[ir.Attribute],
        values: _Values,
        at: Place | None,
    ) -> list[ir.Attribute]:
        while _scalar(self._region(op.regions[0], state, values, at)[0]):
            state = self._region(op.regions[1], state, values, at)
        return state

    def _run_parallel(self, op: ir.OpView, inputs: Sequence[ir.Attribute]) -> list[ir.Attribute]:
        if "infeed" in op.attributes:
            raise InterpretError(op, "infeed is refused")
        rows = [
            [self._functions[ir.FlatSymbolRefAttr(name).value] for name in ir.ArrayAttr(row)]
            for row in ir.ArrayAttr(op.attributes["programs"])
        ]
        grid = Grid(len(rows), len(rows[0]))
        programs = {(r, p): rows[r][p] for r, p in grid.processes}
        arguments: dict[Process, Sequence[ir.Attribute]] = {}
        start = 0
        for process, program in programs.items():
            end = start + len(program.regions[0].blocks[0].arguments)
            arguments[process] = inputs[start:end]
            start = end
        returned = grid.run(
            lambda process: self._call(programs[process], arguments[process], Place(grid, process))
        )
        return [value for values in returned for value in values]

    def _is_followed(self, op: ir.OpView | ir.Operation) -> bool:
        """Whether the op, its regions or what it calls hold what is not for jaxlib to run."""
        if any(inner.name in _FOLLOWED for inner in nested(op)):
            return True
        for name, function in named_functions(op, self._functions).items():
            if name not in self._followed:
                self._followed[name] = any(inner.name in _FOLLOWED for inner in nested(function))
            if self._followed[name]:
                return True
        return False


def _branch(op: ir.OpView, chosen: ir.Attribute) -> ir.Region:
    if op.operation.name == "stablehlo.if":
        return op.regions[0 if _scalar(chosen) else 1]
    index, last = _scalar(chosen), len(op.regions) - 1
    return op.regions[index if 0 <= index <= last else last]


def _scalar(value: ir.Attribute) -> int:
    return int(np.array(value).reshape(()))


def interpret(text: str) -> list[ir.Attribute]:
    """What the ``main`` of a module returns.

    Raises:
      ir.MLIRError: the text cannot be parsed.
      InterpretError, StuckError, KeyError: see :meth:`Interpreter.main`.
    """
    context = make_context()
    context.allow_unregistered_dialects = True
    stablehlo.register_interpreter_dialect(context)
    return Interpreter(ir.Module.parse(generic_form(text), context)).main()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; the exit status is 1 where a check or anything else fails."""
    parser = argparse.ArgumentParser(description="Run a StableHLO program that tests itself.")
    parser.add_argument("file", nargs="?", default="-")
    # What the program that this one stands in for has to be told.
    parser.add_argument("--interpret", action="store_true", help="what is done anyway")
    options = parser.parse_args(arguments)
    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text("utf-8")
        results = interpret(text)
    except (InterpretError, StuckError, KeyError, ir.MLIRError, OSError) as error:
        message = str(error.args[0] if isinstance(error, KeyError) else error)
        # MLIR calls a text without a name "-".
        message = re.sub(r'"-":(?=\d)|^-:(?=\d)', f"{options.file}:", message)
        print(f"stablehlo_interpret: error: {message}", file=sys.stderr)
        return 1
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
