"""Programs of pipelines that do more than lay values out.

``jax.jit`` can be told layouts, and nothing else that a pass decides. Where passes change what a
function computes, JAX traces it as it is, with the shardings of the plan, and the module is put
through the pipeline on its way to XLA (:mod:`shardpass.runtime.lowering`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardpass.compat import jit_lowering
from shardpass.diagnostics import ShardingError
from shardpass.mlir import load, prepare_for_xla
from shardpass.passes import run_pipeline
from shardpass.runtime.jitted.planning import Placed
from shardpass.runtime.jitted.policy import Policy
from shardpass.runtime.lowering import hook
from shardpass.runtime.lowering.binding import with_bindings
from shardpass.runtime.lowering.calls import Call


def is_possible() -> bool:
    """Whether the hook knows this JAX."""
    try:
        hook.check_jax()
    except ShardingError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class Rewriting:
    """What is to be done with the module of one ``jax.jit``.

    Attributes:
      policy: whose pipeline it goes through.
      name: the function's.
      arguments: what the ``jax.jit`` is told of its arguments, leaf by leaf.
    """

    policy: Policy
    name: str
    arguments: tuple[Placed, ...]

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Calls and lowerings of that ``jax.jit`` in here are rewritten."""
        hook.install()
        try:
            with hook.current(self):
                yield
        finally:
            hook.uninstall()

    def is_meant(self, call: Call) -> bool:
        """Whether ``call`` is of that ``jax.jit``, and of no function that runs on the way."""
        told = call.in_shardings
        return (
            call.name == self.name
            and len(told) == len(self.arguments)
            and all(
                jit_lowering.is_open(given) if place is None else given == place
                for given, place in zip(told, self.arguments, strict=True)
            )
        )


@hook.handles(Rewriting)
def _lowered(original: jit_lowering.Lowering, call: Call, rewriting: Rewriting) -> Any:
    program = original(**call.parameters)
    if not rewriting.is_meant(call):
        return program
    module = load(jit_lowering.module_of(program)).clone()
    signature = module.main.type
    policy = rewriting.policy
    run_pipeline(module, with_bindings(policy.pipeline), in_place=True, **policy.given)
    if module.main.type != signature:
        raise ShardingError(
            "not-supported",
            f"the pipeline makes {module.main.type} of {call.name}, which was {signature}",
            help="a pipeline for shardpass.jit may rewrite what a function does, not what it takes "
            "and gives",
        )
    prepare_for_xla(module.root)
    return jit_lowering.with_module(program, module.ir)
