"""From the options of a pipeline's text to the fields of a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field
from typing import Any, TypeVar

from shardpass.diagnostics import Excerpt, ShardingError, did_you_mean
from shardpass.passes.base import Pass
from shardpass.passes.pipeline_text import OptionText, PassText

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})

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
    return cls(**values)


def _value(field: Field[Any], text: str | None) -> Any:
    if isinstance(field.default, bool):
        return _boolean(text)
    if text is None:
        raise ValueError("needs a value")
    parse = field.metadata.get("parse")
    if parse:
        return parse(text)
    kind = type(field.default)
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
