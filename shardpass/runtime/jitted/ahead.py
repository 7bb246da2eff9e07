"""A function ahead of its calls: traced, lowered, compiled, and looked at.

Each stage holds JAX's own, and answers for it in all that is not said here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import jax

from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, load
from shardpass.passes import run_pipeline
from shardpass.report import Report, build_report, compiled_figures
from shardpass.runtime.jitted.signature import Arrangement

Notation = Literal["sdy", "mhlo"]

#: Members that are pairs of what is said of arguments by position and by name.
_OF_ARGUMENTS: Final = ("args_info", "in_avals", "input_shardings", "input_formats")
_PIPELINES: Final = {"sdy": "sp-propagate", "mhlo": "sp-propagate,sp-export-mhlo"}


@dataclass(frozen=True, eq=False)
class Traced:
    """A traced function; see ``jax.stages.Traced``.

    Attributes:
      jax: JAX's own.
      has_devices: whether its mesh does.
      arranged: how its arguments come.
      active: where it is lowered.
    """

    jax: Any
    has_devices: bool
    arranged: Arrangement
    active: Callable[[], contextlib.AbstractContextManager[None]]

    def lower(self, *, lowering_platforms: Sequence[str] | None = None, **options: Any) -> Lowered:
        """Lower it for the devices of its mesh, or for platforms that need not be here.

        On a mesh without devices that is JAX's default platform, if not said otherwise.
        """
        platforms = None if lowering_platforms is None else tuple(lowering_platforms)
        if platforms is None and not self.has_devices:
            platforms = (jax.default_backend(),)
        with self.active():
            lowered = self.jax.lower(lowering_platforms=platforms, **options)
        return Lowered(lowered, self.has_devices, self.arranged, self.jax.fun_name)

    def __getattr__(self, name: str) -> Any:
        return _of(self.jax, name, self.arranged)


@dataclass(frozen=True, eq=False)
class Lowered:
    """A lowered function; see ``jax.stages.Lowered``.

    Attributes:
      jax: JAX's own.
      has_devices: whether its mesh does.
      arranged: how its arguments come.
      name: the function's.
    """

    jax: jax.stages.Lowered
    has_devices: bool
    arranged: Arrangement
    name: str

    def compile(self, compiler_options: dict[str, Any] | None = None) -> Compiled:
        """Compile it for the devices of its mesh.

        Raises:
          ShardingError: ``device-free``, where the mesh has none.
        """
        if not self.has_devices:
            raise ShardingError(
                "device-free",
                "the function was lowered for a mesh without devices, and cannot be compiled",
                help="lower it on a mesh of devices, or look at it: report(), as_text()",
            )
        return Compiled(self.jax.compile(compiler_options), self)

    @cached_property
    def module(self) -> Module:
        """The module that JAX lowered, with the layout of every value written on it."""
        return run_pipeline(load(self.jax, name=self.name), _PIPELINES["sdy"]).module

    def as_text(
        self, dialect: str | None = None, *, notation: Notation | None = None, **options: Any
    ) -> str:
        """The module as text.

        Args:
          dialect: as in ``jax.stages.Lowered.as_text``.
          notation: write the layout of every value, in Shardy's notation or in GSPMD's.
          options: as there.

        Raises:
          ShardingError: ``bad-argument``, for a notation that is none.
        """
        if notation is None:
            return self.jax.as_text(dialect, **options)
        if notation not in _PIPELINES:
            raise ShardingError("bad-argument", f'notation is "sdy" or "mhlo", not {notation!r}')
        if notation == "sdy":
            return self.module.text()
        return run_pipeline(load(self.jax), _PIPELINES[notation]).module.text()

    def report(self) -> Report:
        """What each device holds of arguments and results."""
        return build_report(self.module)

    def __getattr__(self, name: str) -> Any:
        return _of(self.jax, name, self.arranged)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled function; see ``jax.stages.Compiled``.

    Attributes:
      jax: JAX's own.
      lowered: what it was compiled from.
    """

    jax: jax.stages.Compiled
    lowered: Lowered

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it, with arguments of the very kinds that it was lowered for.

        Raises:
          TypeError: for others by position or by name.
        """
        return self.jax(*self.lowered.arranged.by_position(args, kwargs))

    def report(self) -> Report:
        """What each device holds of arguments and results, and what the devices send."""
        figures = compiled_figures(self.jax.as_text() or "", self.jax.memory_analysis())
        return build_report(self.lowered.module, figures)

    def __getattr__(self, name: str) -> Any:
        return _of(self.jax, name, self.lowered.arranged)


def _of(stage: Any, name: str, arranged: Arrangement) -> Any:
    """What JAX's own says, of the arguments as the user handed them over."""
    found = getattr(stage, name)
    if name in _OF_ARGUMENTS:
        return arranged.apart(found)
    return arranged.tree(found) if name == "in_tree" else found
