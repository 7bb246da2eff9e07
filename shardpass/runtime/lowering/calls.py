"""What the hook is called with: a traced function on its way to the compiler."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import jax

from shardpass.compat import jit_lowering

_JAX: Final = str(Path(jax.__file__).parent) + os.sep
_RUNTIME: Final = Path(__file__).parent.parent
_HERE: Final = tuple(str(_RUNTIME / name) + os.sep for name in ("lowering", "plugged"))
_JITTED: Final = str(_RUNTIME / "jitted") + os.sep
_UNNAMED: Final = "<unnamed function>"


@dataclass(frozen=True, eq=False)
class Call:
    """A call of the hook, which is about to lower a function.

    Attributes:
      parameters: what JAX gives it, by name.
      function: what the user wrote, where a library's function stands in its place.
    """

    parameters: dict[str, Any]
    function: Any = None

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        """The call with these arguments, however JAX passes them."""
        return cls(dict(zip(jit_lowering.PARAMETERS[: len(args)], args, strict=True)) | kwargs)

    @property
    def jaxpr(self) -> Any:
        """The traced function."""
        return self.parameters["jaxpr"]

    @property
    def arguments(self) -> Sequence[Any]:
        """JAX's descriptions of the arguments: type, sharding, and whether they are bound to it."""
        return self.parameters["args"]

    @property
    def in_shardings(self) -> Sequence[Any]:
        """What the user says of the arguments, or JAX's word for nothing."""
        return self.parameters["in_shardings"]

    @property
    def out_shardings(self) -> Sequence[Any]:
        """The same for the results."""
        return self.parameters["out_shardings"]

    @property
    def name(self) -> str:
        """The function's name."""
        return self.parameters["name"] or _UNNAMED

    @property
    def place(self) -> str:
        """The function's name and where it is written, as JAX says it."""
        code = getattr(self.function, "__code__", None)
        if code is not None:
            return f"{self.name} at {code.co_filename}:{code.co_firstlineno}"
        file, place = jit_lowering.written_in(self.jaxpr)
        return place if file is not None else ""

    @property
    def begins_at(self) -> tuple[str | None, int | None]:
        """The file and the line where the function begins; ``None`` where JAX does not know."""
        code = getattr(self.function, "__code__", None)
        if code is not None:
            return code.co_filename, code.co_firstlineno
        return jit_lowering.written_in(self.jaxpr)[0], jit_lowering.written_at(self.jaxpr)

    @property
    def is_jaxs_own(self) -> bool:
        """Whether it is a function of JAX's, or nobody can tell what it is.

        Their arguments have names like ``x`` and ``key``, which are not the user's. An object that
        is called is in no file, and has names for its arguments.
        """
        file, _ = jit_lowering.written_in(self.jaxpr)
        return self.is_piece if file is None else file.startswith(_JAX)

    @property
    def is_piece(self) -> bool:
        """Whether it is a part of a function, that JAX made for a derivative outside of a jit.

        Nobody knows what its arguments are called.
        """
        return jit_lowering.argument_names(self.jaxpr) is None

    @property
    def is_of_shardpass_jit(self) -> bool:
        """Whether a function of ``shardpass.jit`` is asking, which has a plan of its own."""
        asking = next(callers(), None)
        return asking is not None and asking.f_code.co_filename.startswith(_JITTED)

    def explicit(self, place: int) -> bool:
        """Whether the user says where argument ``place`` is to lie."""
        return not jit_lowering.is_open(self.in_shardings[place])


def callers() -> Iterator[FrameType]:
    """The frames that called for the lowering, innermost first, without JAX's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_JAX, *_HERE)):
            yield frame
        frame = frame.f_back
