"""The C++ passes inside jaxlib that a pipeline may name, and the op that each one runs on.

MLIR nests passes by that op. A single pass under the wrong op is refused, but a whole pipeline
(``sdy-propagation-pipeline``) under a function **aborts the process**. So pipelines are known to
run on the module and are never tried on a function; single passes are tried on both, since the op
differs by jaxlib's version for some (``sdy-pad-for-divisibility``).
"""

from __future__ import annotations

from functools import cache
from typing import Final

from jax.extend.mlir import ir, passmanager
from jax.extend.mlir.dialects import stablehlo

from shardpass.mlir.context import make_context

MODULE: Final = "builtin.module"
FUNCTION: Final = "func.func"

#: What people may want to name, in the order in which ``--list-passes`` shows it. Any other pass
#: that jaxlib registers works as well.
NATIVE_PASSES: Final[dict[str, str]] = {
    # MLIR
    "canonicalize": "Fold and simplify.",
    "cse": "Merge equal operations.",
    "inline": "Inline function calls.",
    "symbol-dce": "Drop private symbols that nobody uses.",
    # Shardy: pipelines
    "sdy-propagation-pipeline": "Shardy's whole propagation, with import and export.",
    "sdy-import-pipeline": "What Shardy runs before it propagates.",
    "sdy-export-pipeline": "What Shardy runs after it has propagated.",
    # Shardy: import
    "sdy-lift-inlined-meshes": "Give inlined meshes a name.",
    "sdy-inline-meshes": "Write meshes into the shardings, without names.",
    "sdy-remove-size-one-axes": "Drop mesh axes of size one.",
    "sdy-constant-or-scalar-splitter": "Give each use of a constant its own.",
    "sdy-add-data-flow-edges": "Mark where values flow through regions.",
    "sdy-flatten-call-graph": "Give each call its own function.",
    "sdy-manual-axes-cleanup": "Put manual axes in order.",
    "sdy-apply-sharding-constraints": "Copy constraints onto what they constrain.",
    "sdy-sharding-group-import": "Check and unify sharding groups.",
    # Shardy: propagation
    "sdy-basic-propagate": "Propagate once, without priorities.",
    "sdy-aggressive-propagate": "Propagate, resolving conflicts within an op.",
    "sdy-op-priority-propagate": "Propagate, elementwise ops first.",
    "sdy-user-priority-propagate": "Propagate, by the users' priorities.",
    "sdy-populate-op-sharding-rules": "Write each op's sharding rule onto it.",
    "sdy-drop-sharding-rules": "Remove sharding rules.",
    # Shardy: export
    "sdy-propagate-to-func-results": "Copy shardings to function results.",
    "sdy-sink-data-flow-edges": "Move the marks' shardings onto their values.",
    "sdy-constant-or-scalar-merger": "Merge equal constants again.",
    "sdy-remove-sharding-groups": "Drop sharding groups.",
    "sdy-sharding-constraint-to-reshard": "Turn constraints into reshards.",
    "sdy-update-non-divisible-input-output-shardings": (
        "Drop axes of arguments and results that do not divide."
    ),
    "sdy-remove-sub-axes-in-input-output-shardings": "Drop sub-axes of arguments and results.",
    "sdy-close-shardings": "Close every open dimension.",
    "sdy-insert-explicit-reshards": "Make each change of sharding a reshard.",
    "sdy-reshard-to-collectives": "Turn reshards into collectives.",
    "sdy-convert-global-to-local": "Write the per-device program.",
    "sdy-drop-sharding-and-mesh": "Drop Shardy's attributes and meshes.",
    # StableHLO
    "chlo-legalize-to-stablehlo": "Expand CHLO ops.",
    "stablehlo-canonicalize-dynamism": "Make dynamic ops static where they are.",
    "stablehlo-refine-arguments": "Give arguments static types.",
    "stablehlo-refine-shapes": "Refine shapes through the module.",
    "stablehlo-legalize-deprecated-ops": "Replace deprecated ops.",
    "stablehlo-complex-math-expander": "Expand complex arithmetic.",
}


@cache
def _probe_context() -> ir.Context:
    return make_context()


@cache
def _bare_context() -> ir.Context:
    """Passes are named and nested without any dialect, and those of a full context take a while."""
    return ir.Context()


@cache
def register() -> None:
    """Make StableHLO's passes known by name; jaxlib registers Shardy's and MLIR's by itself."""
    stablehlo.register_stablehlo_passes()


def fault_of(text: str) -> str | None:
    """What MLIR has against ``text`` as a module's pipeline, or ``None``."""
    register()
    try:
        passmanager.PassManager.parse(f"{MODULE}({text})", _bare_context())
    except ValueError as error:
        return " ".join(str(error).split())
    return None


@cache
def anchor(name: str) -> str | None:
    """The op that pass ``name`` runs on, or ``None`` where this jaxlib has no such pass."""
    if fault_of(name) is None:
        return MODULE
    if not is_pipeline(name) and fault_of(f"{FUNCTION}({name})") is None:
        return FUNCTION
    return None


def is_anchor(name: str) -> bool:
    """Whether passes can be nested under ``name``: an op that exists, or ``any``.

    MLIR takes any name, and passes under an op that does not exist never run.
    """
    return name == "any" or _probe_context().is_registered_operation(name)


def is_pipeline(name: str) -> bool:
    """Whether ``name`` stands for a pipeline of passes, which runs on a module alone."""
    return name.endswith("-pipeline")
