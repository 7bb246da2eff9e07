"""Plans that were made before, held no longer than JAX holds what they were made from."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any, Final

from shardpass.compat import jit_lowering
from shardpass.runtime.plugged.exempt import LeftAlone
from shardpass.runtime.plugged.rewriting import Planned

Outcome = Planned | LeftAlone

_PLACES: Final = ("in_shardings", "out_shardings", "in_layouts", "out_layouts")
_TYPES: Final = ("global_in_avals", "global_out_avals")


class Memo:
    """By the program that a plan was made for, and by what became of it.

    JAX lowers a function again when its arguments arrive in another way: the first step of a
    training loop is handed what was loaded, the second what the first gave back. It has a cache for
    what it lowers, whose entries go with the traced function or with ``jax.clear_caches``; plans go
    with them. Where two plans come to the same program, the second takes the executable of the
    first, which plain JAX would compile again.
    """

    def __init__(self) -> None:
        self._by_program: weakref.WeakKeyDictionary[Any, dict[Any, Outcome]] = (
            weakref.WeakKeyDictionary()
        )
        self._by_content: weakref.WeakValueDictionary[Any, Planned] = weakref.WeakValueDictionary()

    def find(self, program: Any, key: Any) -> Outcome | None:
        """What was made of ``program``, JAX's own, under ``key``."""
        return self._by_program.get(program, {}).get(key)

    def keep(self, program: Any, key: Any, outcome: Outcome) -> None:
        """Remember it as long as ``program`` lives."""
        self._by_program.setdefault(program, {})[key] = outcome

    def shared(self, planned: Planned) -> Planned:
        """``planned``, or one made before of which JAX would compile the same."""
        compiling = jit_lowering.compile_arguments(planned.program)
        if compiling["host_callbacks"] or compiling["keepalive"] or planned.program.const_args:
            return planned
        text = str(planned.module.root.get_asm(enable_debug_info=False))
        key = (
            hashlib.sha256(text.encode()).digest(),
            jit_lowering.own_options(planned.program),
            frozenset(compiling["kept_var_idx"]),
            *(tuple(compiling[name]) for name in _PLACES),
            *(tuple(map(_kind, compiling[name])) for name in _TYPES),
        )
        return self._by_content.setdefault(key, planned)


def _kind(aval: Any) -> Any:
    """The type of a value, without the mesh that it came from where that means nothing."""
    if jit_lowering.is_explicit_type(aval):
        return aval
    return aval.shape, aval.dtype, getattr(aval, "weak_type", False)
