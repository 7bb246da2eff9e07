"""Tracebacks and locations without the frames that say nothing to users.

JAX takes its own frames out of the tracebacks that it raises, and writes only the user's into the
locations of a module. What is called from inside of it, and belongs to nobody's program either, can
be taken out as well. Source: ``jax/_src/traceback_util.py``, ``jax/_src/source_info_util.py``.
"""

from __future__ import annotations

from jax._src import source_info_util, traceback_util


def leave_out(folder: str) -> None:
    """Have JAX take the frames of files in ``folder`` for its own."""
    traceback_util.register_exclusion(folder)
    source_info_util.register_exclusion(folder)
