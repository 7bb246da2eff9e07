"""The store of small values that the processes of ``jax.distributed`` share.

JAX keeps it to tell processes of each other; there is no public road to it. Source:
``jax/_src/distributed.py``, and ``DistributedRuntimeClient`` of jaxlib.
"""

from __future__ import annotations

from jax._src.distributed import global_state


def put(key: str, value: str) -> None:
    """Make ``value`` known to all processes; a key is given a value once."""
    global_state.client.key_value_set(key, value)  # pyright: ignore[reportOptionalMemberAccess]


def wait_for(key: str, milliseconds: int) -> str:
    """The value of ``key``, as soon as it has one.

    Raises:
      JaxRuntimeError: ``DEADLINE_EXCEEDED``, where it gets none in time.
    """
    client = global_state.client
    return client.blocking_key_value_get(  # pyright: ignore[reportOptionalMemberAccess]
        key, milliseconds
    )
