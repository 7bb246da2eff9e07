"""Where ``jax.jit`` turns a traced function into a program to compile.

``_resolve_and_lower`` is looked up in its module at each call, by both of its callers: the one that
finds nothing compiled for a call, and ``Traced.lower``. It is the last place that sees which
shardings the user left open beside where the arguments lie, and it is told which mesh to lower for.
What it returns is a ``MeshComputation``: a module, and what compiling it takes. Source:
``jax/_src/pjit.py``, ``jax/_src/interpreters/pxla.py``.

Nothing here is fetched before it is asked for, so that a JAX without these names is a JAX without
plugin mode and nothing worse.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from jax._src import core, pjit
from jax._src.interpreters import pxla
from jax._src.named_sharding import UnspecifiedValue

Lowering = Callable[..., Any]

_HOOK: Final = "_resolve_and_lower"
_PROGRAM: Final = "MeshComputation"

#: What the hook was called with on the versions that were looked at (0.10.2, 0.12.0.1).
PARAMETERS: Final = (
    "args",
    "jaxpr",
    "in_shardings",
    "out_shardings",
    "in_layouts",
    "out_layouts",
    "donated_invars",
    "ctx_mesh",
    "name",
    "keep_unused",
    "inline",
    "lowering_platforms",
    "lowering_parameters",
    "pgle_profiler",
    "compiler_options_kvs",
)
#: What a program to compile is made of there.
PROGRAM_PARAMETERS: Final = (
    "self",
    "name",
    "hlo",
    "const_args",
    "donated_invars",
    "platforms",
    "compiler_options_kvs",
    "device_assignment",
    "compile_args",
)


def lowering() -> Lowering | None:
    """The function that lowers, as it is now; ``None`` where JAX has none of that name."""
    return getattr(pjit, _HOOK, None)


def set_lowering(function: Lowering) -> None:
    """Have JAX call ``function`` in its place."""
    setattr(pjit, _HOOK, function)


def parameters() -> tuple[str, ...] | None:
    """The names of what :func:`lowering` takes."""
    function = lowering()
    return None if function is None else tuple(inspect.signature(function).parameters)


def program_parameters() -> tuple[str, ...] | None:
    """The names of what a program to compile is made of."""
    kind = getattr(pxla, _PROGRAM, None)
    return None if kind is None else tuple(inspect.signature(kind.__init__).parameters)


def is_open(sharding: Any) -> bool:
    """Whether ``sharding`` is JAX's word for one that the user has not given."""
    return isinstance(sharding, UnspecifiedValue)


def open_argument(argument: Any) -> Any:
    """``argument``, JAX's description of one, as if it lay nowhere yet."""
    return argument.replace(sharding=None, committed=False, format=None)


def module_of(program: Any) -> Any:
    """The MLIR module of a program to compile, JAX's own object."""
    return program._hlo


def is_explicit_type(aval: Any) -> bool:
    """Whether the type of a value speaks of a mesh with ``Explicit`` axes."""
    sharding = getattr(aval, "sharding", None)
    return sharding is not None and sharding.mesh._any_axis_explicit


def with_sharding(aval: Any, sharding: Any) -> Any:
    """The type of a value that lies as ``sharding`` says."""
    return core.update_aval_with_sharding(aval, sharding)


def with_module(program: Any, module: Any, **compile_args: Any) -> Any:
    """``program`` with another module, and in ``compile_args`` what changes with it."""
    return type(program)(
        program._name,
        module,
        program.const_args,
        program._donated_invars,
        program._platforms,
        program._compiler_options_kvs,
        program._device_list,
        **{**program.compile_args, **compile_args},
    )


def compile_arguments(program: Any) -> dict[str, Any]:
    """What compiling a program takes beside its module, by name."""
    return program.compile_args


def own_options(program: Any) -> tuple[Any, ...]:
    """What else decides how a program is compiled: its name, donations, platforms and options."""
    return (
        program._name,
        tuple(program._donated_invars),
        tuple(program._platforms),
        program._compiler_options_kvs,
    )


def argument_names(jaxpr: Any) -> Sequence[str] | None:
    """What a traced program's arguments are called; ``None`` for a piece of one."""
    debug_info = jaxpr.debug_info
    return None if debug_info is None else debug_info.arg_names


def written_in(jaxpr: Any) -> tuple[str | None, str]:
    """The file that a traced function is written in, and its name and place."""
    debug_info = jaxpr.debug_info
    if debug_info is None:
        return None, ""
    return debug_info.func_filename, debug_info.func_src_info or ""


def written_at(jaxpr: Any) -> int | None:
    """The line at which a traced function begins, decorators included."""
    debug_info = jaxpr.debug_info
    return None if debug_info is None else debug_info.func_lineno
