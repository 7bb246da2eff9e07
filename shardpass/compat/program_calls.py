"""A call of a traced program from inside another trace, as one equation.

That is what JAX makes of a function of ``jax.jit`` that is called inside another: the equation's
parameters hold the traced program, and nothing of it is traced again. The one public road,
``jax.extend.core.jaxpr_as_fun``, goes through the program equation by equation. Source: the
parameters of ``jit_p`` in ``jax/_src/pjit.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax


def call_program(program: Any, leaves: Sequence[Any], name: str) -> list[Any]:
    """What ``program``, a closed jaxpr, makes of ``leaves``, under the name of a function."""

    def pattern(x: Any) -> Any:
        return x

    made: Any = jax.make_jaxpr(jax.jit(pattern))(jax.ShapeDtypeStruct((), "float32"))
    equation = made.eqns[0]
    (unspecified,) = equation.params["out_shardings"]
    taken, given = len(leaves), len(program.out_avals)
    params = {
        **equation.params,
        "jaxpr": program,
        "name": name,
        "in_shardings": (unspecified,) * taken,
        "out_shardings": (unspecified,) * given,
        "in_layouts": (None,) * taken,
        "out_layouts": (None,) * given,
        "donated_invars": (False,) * taken,
    }
    return equation.primitive.bind(*leaves, **params)
