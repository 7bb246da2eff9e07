"""The metadata that an XLA sharding can carry: where it came from, and how to reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

# The type of the entry by which jaxlib 0.12 says how unreduced values combine; its name is the kind
# in capitals: {op_type="sdy::reduction_op" op_name="MAX"}.
REDUCTION_OP: Final = "sdy::reduction_op"

MetadataValue: TypeAlias = str | int | bool | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """One ``{op_name="f" source_line=3}``: fields in the order in which they stand.

    String values keep their escapes, so that printing gives the text that was read.
    """

    fields: tuple[tuple[str, MetadataValue], ...] = ()

    @property
    def is_reduction(self) -> bool:
        """Whether this says how unreduced values are to be combined."""
        return ("op_type", REDUCTION_OP) in self.fields

    @property
    def reduction(self) -> str | None:
        """``"sum"``, ``"max"`` or ``"min"``, where this is a reduction."""
        name = dict(self.fields).get("op_name") if self.is_reduction else None
        return name.lower() if isinstance(name, str) else None

    def __str__(self) -> str:
        return "{" + " ".join(f"{name}={_value_text(value)}" for name, value in self.fields) + "}"


def metadata_text(entries: Sequence[Metadata]) -> str:
    """``metadata={...}`` for one entry, ``metadata={{...}, {...}}`` for several."""
    if len(entries) == 1:
        return f"metadata={entries[0]}"
    return f"metadata={{{', '.join(map(str, entries))}}}"


def _value_text(value: MetadataValue) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case tuple():
            return f"{{{','.join(map(str, value))}}}"
        case _:
            return str(value)
