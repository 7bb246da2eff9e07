"""jaxlib's client and JAX's backend state, as far as running a module by hand needs them.

``jax.extend.backend`` gives a backend that compiles a module, and takes the devices as jaxlib's own
list class, which has no public name.

JAX registers its LAPACK kernels with XLA when it is imported, and gives them the addresses of
scipy's routines when it first lowers a call of one. A module that was lowered elsewhere runs into
the missing address: a segmentation fault. Source: ``jaxlib/lapack.py``.
"""

from __future__ import annotations

import numpy as np
from jax._src.xla_bridge import backends_are_initialized as backends_are_initialized
from jaxlib import lapack
from jaxlib.xla_client import DeviceList as DeviceList

__all__ = ["DeviceList", "backends_are_initialized", "initialize_lapack"]


def initialize_lapack() -> None:
    """Make the ``lapack_*`` custom calls of CPU programs callable; loads scipy the first time."""
    lapack.prepare_lapack_call("potrf_ffi", np.dtype(np.float32))
