"""What a pass is."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

from jax.extend.mlir import ir

from shardpass.diagnostics import Sink

#: What a pass does to a module, in Python.
Body = Callable[[ir.Operation, Sink], None]


@dataclass(frozen=True)
class Look:
    """A step that reads the module and changes nothing.

    There is nothing to verify behind it, so it is run together with the step in Python beside it.
    On a large module MLIR's verifier takes as long as a simple pass.

    Attributes:
      body: the reading.
      before_verifier: whether it copes with what a pass in front of it left and MLIR has not
        verified yet. Otherwise it sees verified modules alone.
      asks: what it refuses a module for, by names of any kind. Where looks that run together ask
        the same, one of them does; it may be the one behind the other, so that nothing between them
        may rely on the answer.
    """

    body: Body
    before_verifier: bool = False
    asks: Set[str] = frozenset()


#: One step of a pass: native passes as MLIR's own pipeline text under ``builtin.module``, a
#: callable on the module, or a look at it.
Stage = str | Body | Look


@dataclass(frozen=True, kw_only=True)
class Pass:
    """A rewrite or a check of a whole module.

    A pass is a frozen dataclass: its fields are its options, in Python as in a pipeline's text
    (``sp-annotate{rules=r.toml}``), and its docstring is its documentation. A subclass gives
    ``name`` and :meth:`run`. It reports to the sink and goes on, so that one run shows every fault;
    a pass that has reported an error ends the pipeline when it returns. It may also raise
    :class:`~shardpass.diagnostics.ShardingError`, where going on makes no sense.

    The root is edited in place. Whoever runs the pipeline has made a clone.
    """

    name: ClassVar[str]
    #: Whether the program of an exported function's gradient is to go through it as well as that of
    #: the function. So it is for what goes by meshes and notations, and not by names of arguments.
    is_for_gradients: ClassVar[bool] = False

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Rewrite or check the ``builtin.module`` operation ``root``."""
        raise NotImplementedError

    def stages(self) -> Sequence[Stage]:
        """The steps to run, in order; by default :meth:`run` alone.

        A pass that wraps native ones gives their pipeline text between its own steps; one that only
        checks gives ``Look(self.run)``, and costs no run of the verifier.
        """
        return (self.run,)

    @classmethod
    def summary(cls) -> str:
        """The first paragraph of the docstring, on one line."""
        text = inspect.getdoc(cls) or ""
        return " ".join(text.split("\n\n")[0].split())

    @classmethod
    def options(cls) -> dict[str, dataclasses.Field[Any]]:
        """The options by the name that a pipeline's text uses (``warn-bytes``)."""
        return {
            field.name.replace("_", "-"): field for field in dataclasses.fields(cls) if field.init
        }


def option(default: Any, *, help: str, parse: Callable[[str], Any] | None = None) -> Any:
    """A field of a pass.

    Args:
      default: its value when nobody says otherwise.
      help: one line for ``--list-passes`` and the pass reference.
      parse: how a pipeline's text becomes a value; by default from the type of ``default``, which
        is then ``bool``, ``int``, ``float`` or ``str``, or ``None`` for a field that is annotated
        as one of these. It raises ``ValueError`` for a text that does not fit.
    """
    return dataclasses.field(default=default, metadata={"help": help, "parse": parse})
