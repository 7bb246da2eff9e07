"""What a function has to say to its user, said at the line that calls it."""

from __future__ import annotations

import os
import sys
import warnings

import jax
from rich.console import Console

import shardpass
from shardpass.report import Report, render_terminal

_OURS_AND_JAX = tuple(
    os.path.dirname(os.path.abspath(package.__file__ or "")) + os.sep
    for package in (shardpass, jax)
)

#: Columns of a log, where nobody says (``COLUMNS``).
_COLUMNS_OF_A_LOG = 140


def show(report: Report) -> None:
    """Print ``report`` on standard error."""
    known = sys.stderr.isatty() or os.environ.get("COLUMNS")
    console = Console(stderr=True, width=None if known else _COLUMNS_OF_A_LOG)
    render_terminal(report, console)


def warn(text: str) -> None:
    """Warn the user, at the innermost line of code that is neither shardpass's nor JAX's."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS_AND_JAX):
        frame = frame.f_back
        level += 1
    warnings.warn(text, stacklevel=level)
