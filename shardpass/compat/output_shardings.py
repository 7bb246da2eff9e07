"""JAX's table of output-sharding handlers: exact type of a sharding -> how to rebuild one.

After a compile, JAX holds XLA's shardings of the results as ``GSPMDSharding``. It takes the first
input (or inner constraint) whose exact type is in this table and asks that type's handler for an
object of the same kind. Source:
``maybe_recover_user_shardings`` in ``jax/_src/interpreters/pxla.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax._src.interpreters import pxla

Handler = Callable[[jax.sharding.Sharding, Any, Any], jax.sharding.Sharding]


def handlers() -> dict[type, Handler]:
    """The table itself: ``handler(xla_sharding, output_aval_or_None, input_sharding)``."""
    return pxla._orig_out_sharding_handlers


def enter(kind: type, handler: Callable[[Any, Any, Any], jax.sharding.Sharding]) -> None:
    """Add a class to the table; again makes no difference."""
    handlers()[kind] = handler
