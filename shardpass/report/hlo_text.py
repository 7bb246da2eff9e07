"""Reading XLA's optimized HLO, line by line.

The text is a list of computations; each is a header that ends in ``{``, one instruction a line, and
a closing brace. Only what a report needs is understood: names, shapes with their sizes, opcodes,
operands and which computations call which. Everything else is skipped, so that a new attribute or
printing option does no harm. Constants and metadata can make a line a megabyte long: nothing scans
a whole line where its beginning is enough.

An instruction, as jaxlib 0.10 and 0.12 print it::

    ROOT %all-reduce.2 = f32[8,32]{1,0} all-reduce(%fusion), channel_id=1, to_apply=%add.clone
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from shardpass.mlir.element_types import element_bytes

_HEADER = re.compile(r"(?P<entry>ENTRY\s+)?%?(?P<name>[\w.\-~]+)\s*(?:\(.*)?\{\s*$")
_INSTRUCTION = re.compile(r"\s+(?P<root>ROOT\s+)?%?(?P<name>[\w.\-~]+) = ")
_OPCODE = re.compile(r"\s*(?P<opcode>[a-z][\w\-]*)\(")
_NAME = re.compile(r"%?([A-Za-z_][\w.\-~]*)")
_ARRAY = re.compile(
    r"(?P<type>[a-z]\w*)\[(?P<dims>[^\]]*)\](?:\{[^}]*?E\((?P<bits>\d{1,4})\)[^}]*\})?"
)
_SIZE = re.compile(r"(?:<=)?(\d{1,18})", re.ASCII)
_CALLEE = re.compile(
    r"\b(?P<role>calls|to_apply|body|condition|true_computation|false_computation)"
    r"=%?(?P<name>[\w.\-~]+)"
)
_CALLEES = re.compile(r"\b(?:branch_computations|called_computations|calls)=\{(?P<names>[^}]*)\}")
_COMMENT = re.compile(r"/\*.*?\*/")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line; ``shape`` is its text, ``rest`` what follows the operands' opening bracket."""

    name: str
    shape: str
    opcode: str
    rest: str
    is_root: bool

    @property
    def bytes(self) -> int:
        """Size of the result on one device."""
        return shape_bytes(self.shape)

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands; empty for a constant or a parameter."""
        if self.opcode in ("constant", "parameter", "iota"):
            return ()
        inner = _COMMENT.sub("", self.rest[: _closing(self.rest, 0)])
        return tuple(
            found[1]
            for part in split_top_level(inner)
            # A printer may put the operand's shape in front of its name.
            if (found := _NAME.fullmatch(part.rsplit(" ", 1)[-1]))
        )

    @property
    def literal(self) -> str:
        """What stands between the brackets: a constant's value, a parameter's number."""
        return self.rest[: _closing(self.rest, 0)]

    @property
    def attributes(self) -> str:
        """The text behind the operands."""
        return self.rest[_closing(self.rest, 0) + 1 :]

    def callees(self) -> dict[str, list[str]]:
        """Role (``body``, ``condition``, ``calls``, ``branches``) -> names of computations."""
        before_metadata = self.attributes.split(", metadata={", 1)[0]
        found: dict[str, list[str]] = {}
        for one in _CALLEE.finditer(before_metadata):
            branch = one["role"] in ("true_computation", "false_computation")
            found.setdefault("branches" if branch else one["role"], []).append(one["name"])
        for several in _CALLEES.finditer(before_metadata):
            names = _NAME.findall(several["names"])
            role = "branches" if several[0].startswith("branch") else "calls"
            found.setdefault(role, []).extend(names)
        return found


@dataclass
class Computation:
    """A computation, its instructions read when they are asked for."""

    name: str
    lines: list[str] = field(default_factory=list)

    @cached_property
    def instructions(self) -> dict[str, Instruction]:
        """Name -> instruction, in order."""
        return {i.name: i for line in self.lines if (i := read_instruction(line))}

    @property
    def root(self) -> Instruction | None:
        """The instruction whose value is the computation's."""
        return next((i for i in self.instructions.values() if i.is_root), None)


@dataclass(frozen=True)
class HloText:
    """A module: its computations by name, and which of them is run."""

    computations: dict[str, Computation]
    entry: str | None


def read_hlo(text: str) -> HloText:
    """Split ``text`` into computations. Text that is no HLO gives a module without any."""
    computations: dict[str, Computation] = {}
    entry: str | None = None
    current: Computation | None = None
    for line in text.split("\n"):
        if line[:1] in (" ", "\t"):
            if current is not None:
                current.lines.append(line)
            continue
        if line.startswith("}"):
            current = None
        elif line.endswith("{") and (header := _HEADER.match(line)):
            current = computations[header["name"]] = Computation(header["name"])
            entry = header["name"] if header["entry"] else entry
    if entry is None and len(computations) == 1:
        entry = next(iter(computations))
    return HloText(computations, entry)


def read_instruction(line: str) -> Instruction | None:
    """The instruction on ``line``, or ``None``."""
    head = _INSTRUCTION.match(line)
    if not head:
        return None
    start = head.end()
    is_tuple = line.startswith("(", start)
    end = _closing(line, start + 1) + 1 if is_tuple else line.find(" ", start)
    opcode = _OPCODE.match(line, end) if end > 0 else None
    if not opcode:
        return None
    return Instruction(
        head["name"],
        line[start:end],
        opcode["opcode"],
        line[opcode.end() :],
        head["root"] is not None,
    )


def shape_bytes(shape: str) -> int:
    """Bytes of a shape, tuples summed: ``(f32[8,8]{1,0}, bf16[4])`` is 264."""
    return sum(_array_bytes(found) for found in _ARRAY.finditer(shape))


def tuple_elements(shape: str) -> tuple[str, ...]:
    """The elements of a tuple shape, or the shape itself."""
    if not shape.startswith("("):
        return (shape,)
    return tuple(split_top_level(_COMMENT.sub("", shape[1:-1])))


def split_top_level(text: str) -> Iterator[str]:
    """Split at the commas that stand in no bracket."""
    depth = start = 0
    for index, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and not depth:
            yield text[start:index].strip()
            start = index + 1
    if last := text[start:].strip():
        yield last


def _array_bytes(found: re.Match[str]) -> int:
    elements = 1
    for size in found["dims"].split(","):
        # A bounded dynamic size, <=8, takes the room of its bound.
        if digits := _SIZE.fullmatch(size.strip()):
            elements *= int(digits[1])
    if found["bits"]:
        return -(-elements * int(found["bits"]) // 8)
    return elements * element_bytes(found["type"])


def _closing(text: str, start: int) -> int:
    """Where the bracket closes that was opened just before ``start``."""
    depth = 1
    for found in _BRACKET.finditer(text, start):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return found.start()
    return len(text)


_BRACKET = re.compile(r"[()]")
