"""jaxlib's own ``HloSharding`` and ``OpSharding``: what JAX's ``GSPMDSharding`` holds and takes.

``jax.extend.sharding`` returns objects of both classes and names neither. Only text and serialized
protos are exchanged with them: their getters abort the process for tuples and named shardings.
"""

from __future__ import annotations

import functools
from typing import Any

from jaxlib import xla_client

HloSharding: type[Any] = xla_client.HloSharding
OpSharding: type[Any] = xla_client.OpSharding


@functools.lru_cache(maxsize=1024)
def from_text(text: str) -> Any:
    """jaxlib's ``HloSharding`` of XLA's text, which must be valid: it is not checked well."""
    return xla_client.HloSharding.from_string(text)


def proto_bytes(sharding: Any) -> bytes:
    """The serialized ``OpSharding`` of either class."""
    if isinstance(sharding, xla_client.HloSharding):
        sharding = sharding.to_proto()
    return sharding.SerializeToString()


def of_sharding(sharding: Any) -> Any:
    """The ``HloSharding`` that one of JAX's ``GSPMDSharding`` holds."""
    return sharding._hlo_sharding
