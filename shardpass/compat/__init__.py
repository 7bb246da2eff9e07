"""The only drawer with private JAX and jaxlib names in it, and why each of them lies there.

JAX keeps its promises for what it documents. A package that wants its own sharding classes to be
first-class citizens, or to read what XLA made of a program, needs a handful of names beyond that.
They all live here, so that a new JAX release can break one folder and no other:

* one file per area, named after what it is for;
* no logic: a name is fetched, at most wrapped in a function with types and a docstring, and every
  decision about it is taken in a layer above;
* one test per name in ``tests/compat/``, which says what the value must be and what breaks in the
  package when it is not. When JAX moves a name, that test is the error message;
* importing ``shardpass.compat`` itself imports nothing; the layer that needs an area imports its
  file.

What is here, by area:

``output_shardings``
    JAX turns the shardings that XLA chose for a program's results into objects again, by the exact
    type of an input's sharding. A class that is not in that table loses its type and its axis
    names after ``jit``, and raises ``KeyError`` under ``vmap``.
``mesh_context``
    ``with mesh:`` is documented by the reference and deprecated by JAX; we enter the same context
    without the warning.

``devices``
    ``jax.Device``, spelt so that type checkers know it.

``lowering``
    what any JAX sharding lowers to, as XLA's text or for Shardy, and the devices it stands on, in
    order.

``hlo_sharding``
    the classes of jaxlib that JAX's ``GSPMDSharding`` holds and takes, which ``jax.extend`` returns
    without naming them.

``sharding_hooks``
    what JAX asks of a sharding that is a class of its own: the members with an underscore, in terms
    of the public ones of ours.

``program_calls``
    a traced program called inside another trace as one equation, which no public name does.

``jit_cache``
    how many kinds of calls a function of ``jax.jit`` has met, which says when one is new.

``jit_lowering``
    the one function that plugin mode hooks: it makes a program of a traced function and the places
    of its arguments.

``exporting``, ``hlo_import``, ``xla_client``
    the fields of an exported function that hold its plan; XLA's reader of HLO; its classes.

``coordination``
    the store of small values that the processes of ``jax.distributed`` share.

``tracebacks``
    frames of JAX's in the errors that users see.

The layer sits above ``canon`` and below ``sharding``. It may import jax and jaxlib, public or not;
nothing else in the package imports ``jax._src`` or ``jaxlib``.
"""
