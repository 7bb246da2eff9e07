"""jaxlib's client and JAX's backend state, as far as running a module by hand needs them.

``jax.extend.backend`` gives a backend that compiles a module, and takes the devices as jaxlib's own
list class, which has no public name.
"""

from __future__ import annotations

from jax._src.xla_bridge import backends_are_initialized as backends_are_initialized
from jaxlib.xla_client import DeviceList as DeviceList

__all__ = ["DeviceList", "backends_are_initialized"]
