"""The metadata that an XLA sharding can carry: where it came from, and how to reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

# The type of the entry by which jaxlib 0.12 says how unreduced values combine; its name is the kind
# in capitals: {op_type="sdy::reduction_op" op_name="MAX"}.
REDUCTION_OP: Final = "sdy::reduction_op"

MetadataValue: TypeAlias = str | int | tuple[int, ...]

# The fields of XLA's OpMetadata that its text knows, in the order in which it prints them, with
# what an absent one means.
DEFAULTS: Final[dict[str, MetadataValue]] = {
    "op_type": "",
    "op_name": "",
    "source_file": "",
    "source_line": 0,
    "source_end_line": 0,
    "source_column": 0,
    "source_end_column": 0,
    "profile_type": (),
    "deduplicated_name": "",
    "scheduling_name": "",
    "stack_frame_id": 0,
    "metadata_payload": "",
}
_ORDER = {name: index for index, name in enumerate(DEFAULTS)}


@dataclass(frozen=True, slots=True)
class Metadata:
    """One ``{op_name="f" source_line=3}``.

    Attributes:
      fields: names and values, brought into XLA's order; what is empty or zero is dropped, as XLA
        drops it. String values keep their escapes.
    """

    fields: tuple[tuple[str, MetadataValue], ...] = ()

    def __post_init__(self) -> None:
        said = [(name, value) for name, value in self.fields if value != DEFAULTS[name]]
        object.__setattr__(self, "fields", tuple(sorted(said, key=lambda f: _ORDER[f[0]])))

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


def metadata_text(entries: Sequence[Metadata], *, always_list: bool = False) -> str:
    """``metadata={...}`` for one entry, ``metadata={{...}, {...}}`` for several."""
    if len(entries) == 1 and not always_list:
        return f"metadata={entries[0]}"
    return f"metadata={{{', '.join(map(str, entries))}}}"


def _value_text(value: MetadataValue) -> str:
    match value:
        case str():
            return f'"{value}"'
        case tuple():
            return f"{{{','.join(map(str, value))}}}"
        case _:
            return str(value)
