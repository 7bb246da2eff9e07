"""``shardpass.plugin`` and what it returns."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from shardpass.canon import MeshShape
from shardpass.runtime.jitted.telling import warn
from shardpass.runtime.plugged.holding import Held, hold_everywhere, release_everywhere
from shardpass.runtime.plugged.lowered import install, uninstall
from shardpass.runtime.plugged.report import PluginReport, Record
from shardpass.runtime.plugged.wanted import Wanted, read, read_for_later


class Plugin:
    """Plugin mode with one policy, off until it is entered or enabled.

    It can be entered again, also inside itself and inside others: the innermost policy holds, and
    goes on to hold where blocks around it end first.
    """

    def __init__(self, wanted: Wanted, *, print_report: bool) -> None:
        self._wanted = wanted
        self._print_report = print_report
        self._record = Record(wanted.shape.describe(), wanted.unused_names)
        self._entered: list[Held] = []

    def __enter__(self) -> Plugin:
        """Switch it on in this thread, until the end of the block."""
        install(self._wanted, self._record)
        self._entered.append(Held.begin(self._wanted))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave everything as it was before the block."""
        self._entered.pop().end()
        uninstall(self._wanted, self._record)
        self._end(failed=error is not None)

    def enable(self) -> None:
        """Switch it on in all threads, until :meth:`disable`.

        Blocks that threads have entered hold there.
        """
        install(self._wanted, self._record)
        hold_everywhere(self._wanted)

    def disable(self) -> None:
        """Undo the last :meth:`enable`."""
        release_everywhere(self._wanted)
        uninstall(self._wanted, self._record)
        self._end(failed=False)

    @property
    def mesh_shape(self) -> MeshShape:
        """The names and sizes of the mesh's axes."""
        return self._wanted.shape

    def report(self) -> PluginReport:
        """What was compiled with a plan so far, and what was left alone and why."""
        return self._record.report()

    def _end(self, *, failed: bool) -> None:
        if self._print_report:
            print(self.report(), file=sys.stderr)
        # Behind an error of the user's nobody asks what the rules were good for.
        for told in () if failed else self.report().warnings:
            warn(str(told))


def plugin(
    *,
    mesh: Any = None,
    rules: Any = None,
    pipeline: Any = None,
    leave_alone: Iterable[Any] = (),
    report: bool = False,
) -> Plugin:
    """Compile what stands under plain ``jax.jit`` with the shardings that rules and passes find.

    ::

        with shardpass.plugin(mesh={"data": 2, "model": 4}, rules="rules.toml") as plugged:
            train()                      # which calls jax.jit and knows nothing of this
        print(plugged.report())

    Nothing has to be cleared before or after. The first use of plugin mode in a process makes JAX
    compile once more what it had compiled before.

    Args:
      mesh: a mesh of JAX's or ours, or a mapping from axis name to size, which stands for the
        devices of this process with ``Auto`` axes; by default the one that the rules have.
      rules: a list of ``(regex, PartitionSpec)``, a ``PartitionRules``, or the path of a TOML file.
      pipeline: the passes, as :func:`shardpass.run_pipeline` takes them; ``sp-annotate`` (where
        there are rules) and ``sp-propagate`` by default.
      leave_alone: names of functions that are to compile as they would, or regexes for whole names.
      report: print the report to standard error when the block ends.

    Raises:
      ShardingError: what is wrong with any of these. Entering the block: ``unknown-jax`` on a JAX
        whose inside is not as expected. Inside, from the call of a function: what the passes report
        of it.
    """
    return Plugin(read(mesh, rules, pipeline, leave_alone), print_report=bool(report))


def plugin_for_later(
    *, shape: MeshShape | None, rules: Any, pipeline: Any, leave_alone: Iterable[Any]
) -> Plugin:
    """As :func:`plugin`, for a program that starts JAX's backends itself.

    The mesh is ``shape``, over the devices that there are when the first function is compiled.

    Raises:
      ShardingError: as :func:`plugin`; ``not-enough-devices`` when that function is called.
    """
    return Plugin(read_for_later(shape, rules, pipeline, leave_alone), print_report=False)
