"""How shardpass speaks when something is wrong, or merely worth knowing.

Every fault in the package is one value, a :class:`Diagnostic`: a severity, a *slug* (a short stable
name such as ``indivisible`` that tests, scripts and search engines can hold on to), one sentence
with the numbers in it, where it is, and what to do about it. Everything else in this layer is a way
to carry that value:

* :class:`ShardingError` carries one through a ``raise``. Constructors and library calls use it. It
  is a ``ValueError``, because bad input is what it stands for.
* :class:`Sink` collects many. Passes report to a sink and go on, so that one run shows every fault.
* :func:`render` prints one for people, with the source line and a caret; :meth:`Diagnostic.to_json`
  prints it for programs.
* :mod:`shardpass.diagnostics.expected` compares what was reported with the ``expected-error``
  comments of a test file, as MLIR's ``-verify-diagnostics`` does.

The catalogue of slugs is :mod:`shardpass.diagnostics.slugs`; a slug that is not in it is refused,
so that the list of everything that can go wrong is always complete. Slugs with a slash in them
belong to passes that live elsewhere.

This layer imports the standard library alone.
"""

from shardpass.diagnostics.diagnostic import (
    Diagnostic,
    Excerpt,
    Note,
    Severity,
    SourceLocation,
)
from shardpass.diagnostics.errors import ShardingError
from shardpass.diagnostics.render import render, summary
from shardpass.diagnostics.sink import Sink
from shardpass.diagnostics.suggest import did_you_mean
from shardpass.diagnostics.units import human_bytes

__all__ = [
    "Diagnostic",
    "Excerpt",
    "Note",
    "Severity",
    "ShardingError",
    "Sink",
    "SourceLocation",
    "did_you_mean",
    "human_bytes",
    "render",
    "summary",
]
