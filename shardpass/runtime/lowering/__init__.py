"""Between JAX's trace and XLA: the place where a module can still be changed.

``jax.jit`` turns a traced function into a module in one private function
(:mod:`shardpass.compat.jit_lowering`). What has to be there, plugin mode and the pipelines of
``shardpass.jit`` that rewrite programs, stands in its place as long as it is needed, and no longer.

============ ==========================================================================
``hook``     stands in JAX's place, and asks what is to be done
``calls``    what it is called with
``binding``  what passes write on ops inside, said so that XLA heeds it
``notation`` the notation that a pipeline has to end in
============ ==========================================================================
"""
