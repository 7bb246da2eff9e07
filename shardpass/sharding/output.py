"""Entry of our classes in the table by which JAX names the shardings of a program's results."""

from __future__ import annotations

from typing import Any

import jax

from shardpass.compat import output_shardings
from shardpass.sharding.named import NamedSharding
from shardpass.sharding.single_device import SingleDeviceSharding


def _named(made_by_xla: jax.sharding.Sharding, aval: Any, origin: NamedSharding) -> NamedSharding:
    recover = output_shardings.handlers()[jax.sharding.NamedSharding]
    return NamedSharding.from_jax(recover(made_by_xla, aval, origin))  # pyright: ignore[reportArgumentType]


def _single_device(
    made_by_xla: jax.sharding.Sharding, aval: Any, origin: SingleDeviceSharding
) -> SingleDeviceSharding:
    recover = output_shardings.handlers()[jax.sharding.SingleDeviceSharding]
    return SingleDeviceSharding.from_jax(recover(made_by_xla, aval, origin))  # pyright: ignore[reportArgumentType]


def enter_our_classes() -> None:
    """Add our classes to the table; again makes no difference."""
    table = output_shardings.handlers()
    table[NamedSharding] = _named
    table[SingleDeviceSharding] = _single_device
