"""Plugin mode: plain ``jax.jit`` in code that nobody edits, compiled with a plan.

Inside a block, whatever JAX lowers under ``jax.jit`` or ``pjit`` goes through the pipeline before
it is compiled (:mod:`shardpass.runtime.lowering`). All else is as it was: eager code, dispatch,
caches and transformations are JAX's, and ``jax.set_mesh`` is not called, so that arrays that are
made on the way are not bound to a mesh.

What becomes of a function:

* it is lowered for the devices of the mesh, as if its arguments lay nowhere yet, apart from what
  its author says: his ``in_shardings`` and ``out_shardings``, and what the types of values say on
  ``Explicit`` axes, are kept;
* the pipeline runs over the module, and the finishing step for XLA;
* JAX compiles that module in the place of its own, and is told where arguments go and results
  come from. Arguments that are bound to the mesh in another way enter as they lie, and are moved
  inside the program.

Which policy holds is a part of the key of all of JAX's caches. So nothing is cleared when a block
begins or ends: outside, what was compiled outside is called; inside, what was compiled under a
policy of the same content.

============== ====================================================================
``wanted``     the policy of a block
``exempt``     what is left alone, and why
``adapters``   the user's names where ``flax.nnx.jit`` or ``equinox.filter_jit`` hide them
``arrivals``   arguments that lie elsewhere
``local``      arguments of one process, where the mesh has devices of several
``qualified``  what a function may be called
``border``     where arguments and results lie behind a pipeline
``rewriting``  from the lowered program to the one with a plan
``memo``       plans that were made before
``report``     what was done
``lowered``    what is done with a call that JAX is about to lower
``holding``    which policy holds
``block``      ``shardpass.plugin``
============== ====================================================================

What stays beyond it: eager code; ``jax.grad`` outside of ``jax.jit``, for which JAX takes functions
apart until nobody knows their arguments (the report names them); threads that a block did not start
in (:meth:`Plugin.enable` is for all threads); and arrays that a block has laid out stay where they
are behind it.
"""

from shardpass.runtime.plugged.block import Plugin, plugin
from shardpass.runtime.plugged.exempt import LeftAlone, Why
from shardpass.runtime.plugged.report import Compiled, Failed, Place, PluginReport

__all__ = ["Compiled", "Failed", "LeftAlone", "Place", "Plugin", "PluginReport", "Why", "plugin"]
