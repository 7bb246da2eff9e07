"""The module as it is before and behind single passes: ``--mlir-print-ir-…``.

MLIR prints all dumps or none, and to standard error. So all that are asked for in any way are
printed there, into the file that holds what a child writes; and what the user wants to see is taken
from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jax.extend.mlir import passmanager

#: Stands for every pass.
EVERY: Final = "*"

#: A dump ends with an empty line, which no printed op has inside.
_DUMP = re.compile(
    r"^// -----// IR Dump (?P<when>Before|After) (?P<class>[^\s:]+)(?P<rest>.*) //----- //\n"
    r"(?P<op>(?:.+\n)*)\n*",
    re.MULTILINE,
)
_ARGUMENT = re.compile(r": (?P<name>[^\s{]+)")
#: What :mod:`shardpass.passes.units` calls a part of a pass.
_PART = re.compile(r"(?P<name>[\w-]+)\((?P<number>\d+)/(?P<count>\d+)\)")
#: The symbol of a printed function.
_FUNCTION = re.compile(r"func\.func (?:\w+ )?(?P<symbol>@[\w$.-]+|@\"[^\"]*\")")
#: What the steps are called that only :mod:`shardpass.passes.units` puts between passes.
_BETWEEN: Final = "shardpass"


@dataclass(frozen=True)
class Dump:
    """One printed op.

    Attributes:
      before: whether the pass had yet to run.
      name: what the pass is called.
      is_inside: whether the pass had begun before, or goes on behind.
      function: the symbol, where a function alone was printed.
      text: all of it.
    """

    before: bool
    name: str
    is_inside: bool
    function: str | None
    text: str


@dataclass(frozen=True)
class IrPrinting:
    """What is to be printed between passes; the names of passes, or :data:`EVERY`."""

    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    only_changes: bool = False
    only_failures: bool = False
    module_scope: bool = False
    tree: str | None = None
    debug_info: bool = False
    generic: bool = False
    elements_limit: int | None = None
    resource_limit: int | None = None

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.only_failures)

    def enable(self, manager: passmanager.PassManager) -> None:
        """Have ``manager`` print all that might be wanted of its run."""
        manager.enable_ir_printing(
            print_before_all=bool(self.before),
            # To print where a pass fails, MLIR has to print behind passes at all.
            print_after_all=bool(self.after) or self.only_failures,
            print_after_change=self.only_changes,
            print_after_failure=self.only_failures,
            print_module_scope=self.module_scope,
            large_elements_limit=self.elements_limit,
            large_resource_limit=self.resource_limit,
            enable_debug_info=self.debug_info,
            print_generic_op_form=self.generic,
            tree_printing_dir_path=self.tree,
        )

    def sift(self, told: str) -> tuple[str, str]:
        """What to show of ``told``, which MLIR and others wrote, and what is no dump in it."""
        wanted = "".join(dump.text for dump in dumps(told) if self._wants(dump))
        return wanted, _DUMP.sub("", told)

    def _wants(self, dump: Dump) -> bool:
        if dump.name == _BETWEEN or dump.is_inside:
            return False
        named = self.before if dump.before else self.after
        if not dump.before and self.only_failures:
            return True
        return EVERY in named or dump.name in named


def without_steps_between(pipeline: str) -> str:
    """MLIR's text of a pipeline without the steps that nobody asked for by name.

    Native passes that one of ours runs stand in it, between its first part and its last.
    """
    pipeline = re.sub(rf"(?<=[(,]){_BETWEEN},|,{_BETWEEN}(?=[),])", "", pipeline)
    return _PART.sub(lambda part: part["name"], pipeline)


#: For the last words of a process that dies: what ran, and on what.
TRACE: Final = IrPrinting(
    before=frozenset({EVERY}), after=frozenset({EVERY}), elements_limit=4, resource_limit=4
)


def dumps(told: str) -> Iterator[Dump]:
    """The dumps in ``told``, in order."""
    for found in _DUMP.finditer(told):
        argument = _ARGUMENT.match(found["rest"])
        name = argument["name"] if argument else found["class"]
        function = _FUNCTION.match(found["op"])
        before = found["when"] == "Before"
        text, is_inside = found[0], False
        if part := _PART.fullmatch(name):
            is_inside = part["number"] != ("1" if before else part["count"])
            text = text.replace(name, part["name"])
            name = part["name"]
        yield Dump(before, name, is_inside, function["symbol"] if function else None, text)
