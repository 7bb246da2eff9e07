"""Entry of our classes in the table by which JAX names the shardings of a program's results."""

from __future__ import annotations

from typing import Any

import jax

from shardpass.compat import output_shardings
from shardpass.sharding.gspmd import GSPMDSharding
from shardpass.sharding.named import NamedSharding
from shardpass.sharding.pmap import PmapSharding
from shardpass.sharding.pmap import in_jax_results as mapped
from shardpass.sharding.positional import PositionalSharding
from shardpass.sharding.positional import in_jax_results as _positional
from shardpass.sharding.single_device import SingleDeviceSharding


def _named(made_by_xla: jax.sharding.Sharding, aval: Any, origin: NamedSharding) -> NamedSharding:
    recover = output_shardings.handlers()[jax.sharding.NamedSharding]
    return NamedSharding.from_jax(recover(made_by_xla, aval, origin))  # pyright: ignore[reportArgumentType]


def _single_device(
    made_by_xla: jax.sharding.Sharding, aval: Any, origin: SingleDeviceSharding
) -> SingleDeviceSharding:
    recover = output_shardings.handlers()[jax.sharding.SingleDeviceSharding]
    return SingleDeviceSharding.from_jax(recover(made_by_xla, aval, origin))  # pyright: ignore[reportArgumentType]


def _gspmd(made_by_xla: Any, aval: Any, origin: GSPMDSharding) -> GSPMDSharding:
    return GSPMDSharding.from_jax(made_by_xla)


def _pmap(made_by_xla: Any, aval: Any, origin: PmapSharding) -> PmapSharding | GSPMDSharding:
    found = mapped(made_by_xla, aval, origin)
    return GSPMDSharding.from_jax(made_by_xla) if found is None else found


def enter_our_classes() -> None:
    """Add our classes to the table; again makes no difference."""
    table = output_shardings.handlers()
    table[NamedSharding] = _named
    table[SingleDeviceSharding] = _single_device
    table[GSPMDSharding] = _gspmd
    table[PositionalSharding] = _positional
    table[PmapSharding] = _pmap
