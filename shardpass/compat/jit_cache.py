"""How many kinds of calls a function of ``jax.jit`` knows by heart.

JAX's C++ code keeps an entry for each kind of call that its Python code has been through, and goes
straight to the executable from then on. Source: ``PjitFunction`` in ``jaxlib``.
"""

from __future__ import annotations

from typing import Any


def known_calls(jitted: Any) -> int:
    """The number of entries; another one means that the last call was of a new kind."""
    return jitted._cache_size()
