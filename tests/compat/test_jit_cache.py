"""If this fails, JAX has moved what :mod:`shardpass.compat.jit_cache` reads.

``shardpass.jit`` then no longer notices arguments on devices in another order, with which JAX's
second call ends in an error of XLA's, and on jaxlib 0.10 in a crash.
"""

from __future__ import annotations

import jax
import numpy as np

from shardpass.compat.jit_cache import known_calls


def test_a_new_kind_of_call_is_one_entry_more():
    jitted = jax.jit(lambda x: x + 1)
    sizes = [known_calls(jitted)]
    for value in (np.ones(3), np.ones(3), np.ones(4), jax.numpy.ones(4)):
        jitted(value)
        sizes.append(known_calls(jitted))
    assert sizes == [0, 1, 1, 2, 3]
    jitted.clear_cache()
    assert known_calls(jitted) == 0
