"""From the options of a pipeline's text to the fields of a pass.

A field has a reader of its own (``option(…, parse=…)``), or is of a type that has a usual spelling:
``bool``, ``int``, ``float`` or ``str``, as its default says, or its annotation where that is
``None`` or there is none. What is annotated as ``Any`` takes the text itself.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field
from typing import Any, Final, TypeVar

from shardpass.diagnostics import Excerpt, ShardingError, did_you_mean
from shardpass.passes.base import Pass
from shardpass.passes.pipeline_text import OptionText, PassText

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})

#: How annotations call what a text becomes without a reader; ``str`` stands for the text itself.
_KINDS: Final[dict[str, type]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "Any": str,
    "object": str,
}

PassType = TypeVar("PassType", bound=Pass)


def make_pass(cls: type[PassType], written: PassText, text: str) -> PassType:
    """``cls`` with the options that stand in ``written``, a part of the pipeline ``text``.

    Raises:
      ShardingError: ``bad-option``, with the text and a caret.
    """
    known = cls.options()
    values: dict[str, Any] = {}
    for option in written.options:
        field = known.get(option.key.replace("_", "-"))
        if field is None:
            raise _unknown(cls.name, option, known, text)
        if not _can_be_read(field):
            why = f"no text becomes {_kind_text(field)}; it wants a reader, option(…, parse=…)"
            raise _fault(f'option "{option.key}" of {cls.name}: {why}', option, text)
        if field.name in values:
            raise _fault(f'option "{option.key}" of {cls.name} stands twice', option, text)
        try:
            values[field.name] = _value(field, option.value)
        except ShardingError as error:
            raise error.about(
                f"option {option.key} of {cls.name}", excerpt=Excerpt.at(text, option.offset)
            ) from error
        except ValueError as error:
            raise _fault(f'option "{option.key}" of {cls.name}: {error}', option, text) from error
    for key, field in known.items():
        if field.name not in values and not _has_default(field):
            raise ShardingError(
                "bad-option",
                f'{cls.name} needs its option "{key}"',
                excerpt=Excerpt.at(text, written.offset, len(cls.name)),
                help=f"{cls.name}{{{key}=…}}",
            )
    return cls(**values)


def fields_without_reader(cls: type[Pass]) -> Iterator[tuple[str, str]]:
    """The options of ``cls`` that no text can set, each with its type."""
    for key, field in cls.options().items():
        if not _can_be_read(field):
            yield key, _kind_text(field)


def _can_be_read(field: Field[Any]) -> bool:
    return bool(field.metadata.get("parse")) or _kind(field) is not None


def _has_default(field: Field[Any]) -> bool:
    return (field.default, field.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)


def _kind(field: Field[Any]) -> type | None:
    """What a text for ``field`` becomes by itself; ``None`` where that is not known."""
    if field.default is not None and field.default is not dataclasses.MISSING:
        kind = type(field.default)
        return kind if kind in _KINDS.values() else None
    names = {name.strip() for name in _annotation(field).split("|")} - {"None"}
    return _KINDS.get(names.pop()) if len(names) == 1 else None


def _annotation(field: Field[Any]) -> str:
    """The annotation as text, ``Optional[int]`` as ``int | None``.

    As a text it stands in a class whose module defers annotations, and what it names may be there
    for type checkers alone.
    """
    kind = field.type
    text = kind.__name__ if isinstance(kind, type) else str(kind).strip("'\"")
    return re.sub(r"\bOptional\[([^\[\]]*)\]", r"\1 | None", re.sub(r"\btyping\.", "", text))


def _kind_text(field: Field[Any]) -> str:
    """The type of ``field`` for messages."""
    if field.default is None or field.default is dataclasses.MISSING:
        return _annotation(field)
    return type(field.default).__name__


def _value(field: Field[Any], text: str | None) -> Any:
    kind = _kind(field)
    if kind is bool and not field.metadata.get("parse"):
        return _boolean(text)
    if text is None:
        raise ValueError("needs a value")
    parse = field.metadata.get("parse")
    if parse:
        return parse(text)
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise ValueError(f"{text!r} is not {what}") from None
    return text


def _boolean(text: str | None) -> bool:
    if text is None or text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"{text!r} is not true or false")


def one_of(*allowed: str) -> Callable[[str], str]:
    """A reader of an option that takes one of a few words."""

    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is not one of {', '.join(allowed)}")
        return text

    return read


def _unknown(
    name: str, option: OptionText, known: Mapping[str, object], text: str
) -> ShardingError:
    return ShardingError(
        "bad-option",
        f'{name} has no option "{option.key}"',
        excerpt=Excerpt.at(text, option.offset, len(option.key)),
        help=did_you_mean(option.key, known)
        or (f"it has {', '.join(known)}" if known else "it has none"),
    )


def _fault(message: str, option: OptionText, text: str) -> ShardingError:
    return ShardingError(
        "bad-option", message, excerpt=Excerpt.at(text, option.offset, len(option.key))
    )
