"""If this fails, JAX has moved what :mod:`shardpass.compat.mesh_context` enters and reads.

``with mesh:`` on our meshes then no longer enters JAX's context, or ``shardpass.pjit`` no longer
finds the mesh of the block it is called in.
"""

from __future__ import annotations

import jax
import numpy as np

from shardpass.compat.mesh_context import enter_mesh, entered_mesh, exit_mesh


def test_the_mesh_of_the_innermost_block_is_found():
    outer = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("a",))
    inner = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("b",))
    assert entered_mesh().empty
    enter_mesh(outer)
    enter_mesh(inner)
    assert entered_mesh() == inner
    exit_mesh(inner)
    assert entered_mesh() == outer
    exit_mesh(outer)
    assert entered_mesh().empty
