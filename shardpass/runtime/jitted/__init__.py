"""A ``jax.jit`` that runs the passes.

``jax.jit`` takes shardings for arguments and results, and constraints inside. That is all that
binds in a module that XLA compiles under Shardy, too: annotations on other ops are thrown away. So
the passes' outcome is written down as a *plan*, and the function is compiled by ``jax.jit`` itself,
with the plan's shardings: dispatch, caches, donation, effects and transformations are JAX's own.
Passes that change what a function computes are heeded where its module is lowered, by the hook of
plugin mode; inside other transformations, and on a JAX that the hook does not know, a warning says
that they are not.

How a call goes:

* each arrangement of arguments (how many by position, which by name) has a *form*, and each
  *boundary*, the shardings of a plan's arguments and results, a ``jax.jit`` of its own in it. A
  call goes straight to the one that the last call went to; JAX's C++ code finds what is compiled;
* where that finds nothing, JAX traces the function it was given. That one derives the plan for the
  arguments at hand: it traces the user's function on their shapes, lowers it, and runs the pipeline
  over the module. If the plan's boundary is that of the ``jax.jit`` that asked, the program that
  was traced for the plan becomes its own, as one call; if not, the trace is given up, and the call
  begins again at the ``jax.jit`` of the right boundary;
* where JAX refuses arguments for where they lie, they are placed as the plan has them, which is
  said once.

The user's function is traced on bare shapes, by ``jax.jit(f).trace``, whose cache is JAX's own: its
Python body runs once for each kind of arguments, even where ``jax.jit(f)`` would have run it again
because the same arguments arrived on the mesh.

============== ====================================================================
``policy``     what the user asked for: mesh, rules, pipeline
``signature``  static and donated arguments, by number and by name
``planning``   from a traced function to its plan
``decisions``  what a plan decides about values inside, back in the program
``told``       what a ``jax.jit`` is told of a plan
``tracing``    what ``jax.jit`` traces in the place of the user's function
``leaves``     values and shardings, leaf by leaf
``rewrites``   which passes do more than that
``rewritten``  programs that they are heeded in
``axis_types`` what of a layout is in the types of values, on ``Explicit`` axes
``form``       one arrangement of arguments, with a ``jax.jit`` for each boundary
``placing``    arguments that lie elsewhere
``function``   what ``shardpass.jit`` returns
``ahead``      the same ahead of its calls: traced, lowered, compiled, reported
``export``     as a file that plain JAX loads, with the plan in it
``pjit``       the same under its old name
``constrain``  constraints on values inside, by spec or by the name that rules have for them
``telling``    warnings and reports for the user
============== ====================================================================
"""

from shardpass.runtime.jitted.ahead import Compiled, Lowered, Traced
from shardpass.runtime.jitted.constrain import constrain
from shardpass.runtime.jitted.export import export
from shardpass.runtime.jitted.function import JitFunction, jit
from shardpass.runtime.jitted.pjit import PjitFunction, pjit

__all__ = [
    "Compiled",
    "JitFunction",
    "Lowered",
    "PjitFunction",
    "Traced",
    "constrain",
    "export",
    "jit",
    "pjit",
]
