"""The ops of StableHLO's ``check`` dialect, which jaxlib does not have: a program tests itself.

``check.expect_eq`` and ``expect_eq_const`` want the same bits, ``expect_almost_eq`` and its form
with a constant each element within ``tolerance`` (1e-4 if not said), ``expect_close`` within
``max_ulp_difference`` steps of the element type (and no nearer than ``min_ulp_difference``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from jax.extend.mlir import ir
from native_evaluation import evaluate_text

_HEAD = re.compile(
    r"\bcheck\.(?P<name>expect_\w+)\s+(?P<operands>%[\w$.-]+(?:#\d+)?(?:\s*,\s*%[\w$.-]+(?:#\d+)?)*)"
)
_SETTING = re.compile(r"\s*,\s*(?P<key>\w+)\s*=\s*(?P<value>[^,:{\s]+(?:\s*:\s*[if]\d+)?)")
_TYPE = re.compile(r"\s*:\s*(?P<types>tensor<[^<>]*(?:<[^<>]*>[^<>]*)*>(?:\s*,\s*tensor<[^<>]*>)*)")
_DEFAULT_TOLERANCE = 1e-4


def generic_form(text: str) -> str:
    """The text with its ``check`` ops as any MLIR parser reads them, ``"check.…"(%0) : (…) -> ()``.

    A text that is not of the dialect's own form stays as it is: MLIR's parser says what is wrong.
    """
    written: list[str] = []
    start = 0
    while head := _HEAD.search(text, start):
        found = _rest(text, head)
        if found is None:
            written.append(text[start : head.end()])
            start = head.end()
            continue
        generic, end = found
        written += [text[start : head.start()], generic]
        start = end
    return "".join([*written, text[start:]])


def _rest(text: str, head: re.Match[str]) -> tuple[str, int] | None:
    """What stands behind the operands, as the generic form of all, and where it ends."""
    operands = [operand.strip() for operand in head["operands"].split(",")]
    settings: list[str] = []
    end = head.end()
    constant = re.compile(r"\s*,\s*(?=dense<)").match(text, end)
    if constant:
        close = _closing(text, constant.end() + len("dense"))
        if close is None:
            return None
        settings.append(f"value = {text[constant.end() : close]} : ")
        end = close
    while setting := _SETTING.match(text, end):
        settings.append(f"{setting['key']} = {setting['value']}")
        end = setting.end()
    kind = _TYPE.match(text, end)
    if not kind:
        return None
    first = kind["types"].split(", tensor")[0]
    if constant:
        settings[0] += first
    types = ", ".join([first] * len(operands))
    generic = (
        f'"check.{head["name"]}"({", ".join(operands)}) {{{", ".join(settings)}}} : ({types}) -> ()'
    )
    return generic, kind.end()


def _closing(text: str, start: int) -> int | None:
    """The place behind the ``>`` that closes the ``<`` at ``start``."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "<") - (text[place] == ">")
        if depth == 0:
            return place + 1
    return None


def expect_eq(op: ir.OpView, operands: Sequence[ir.Attribute]) -> str | None:
    """What differs in a bit."""
    actual, expected = _two(op, operands)
    # MLIR keeps one attribute for equal types and bits.
    return None if actual == expected else f"{actual} (actual) is not {expected} (expected)"


def expect_almost_eq(op: ir.OpView, operands: Sequence[ir.Attribute]) -> str | None:
    """What differs by more than the tolerance; NaN is almost equal to NaN."""
    actual, expected = _two(op, operands)
    tolerance = _number(op, "tolerance", _DEFAULT_TOLERANCE)
    left, right = _as_float(actual), _as_float(expected)
    with np.errstate(invalid="ignore"):
        near = (np.abs(left - right) <= tolerance) | (left == right)
    if np.all(near | (np.isnan(left) & np.isnan(right))):
        return None
    return f"{actual} (actual) is not within {tolerance:g} of {expected} (expected)"


def expect_close(op: ir.OpView, operands: Sequence[ir.Attribute]) -> str | None:
    """What is further away, or nearer, than the steps of the element type allow."""
    actual, expected = _two(op, operands)
    least = int(_number(op, "min_ulp_difference", 0))
    most = int(_number(op, "max_ulp_difference", 0))
    left, right = _as_float(actual), _as_float(expected)
    steps = np.abs(_as_steps(actual) - _as_steps(expected))
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    comparable = same | (np.isfinite(left) & np.isfinite(right))
    steps = np.where(same, 0, steps)
    if np.all(comparable & (steps <= most) & (steps >= least)):
        return None
    return f"{actual} (actual) is not {least} to {most} steps from {expected} (expected)"


#: What is wrong with the operands of an op of this name, or None.
CHECKS: dict[str, Callable[[ir.OpView, Sequence[ir.Attribute]], str | None]] = {
    "check.expect_eq": expect_eq,
    "check.expect_eq_const": expect_eq,
    "check.expect_almost_eq": expect_almost_eq,
    "check.expect_almost_eq_const": expect_almost_eq,
    "check.expect_close": expect_close,
}


def _two(op: ir.OpView, operands: Sequence[ir.Attribute]) -> tuple[ir.Attribute, ir.Attribute]:
    if len(operands) == 2:
        return operands[0], operands[1]
    return operands[0], op.attributes["value"]


def _number(op: ir.OpView, name: str, default: float) -> float:
    if name not in op.attributes:
        return default
    attribute = op.attributes[name]
    return attribute.value if isinstance(attribute, (ir.FloatAttr, ir.IntegerAttr)) else default


def _as_float(value: ir.Attribute) -> np.ndarray:
    return np.array(_converted(value, "stablehlo.convert", "f64"))


def _as_steps(value: ir.Attribute) -> np.ndarray:
    """Integers that count the numbers of a float type from zero, negative ones downwards."""
    width = ir.FloatType(ir.RankedTensorType(ir.DenseElementsAttr(value).type).element_type).width
    bits = _converted(value, "stablehlo.bitcast_convert", f"i{width}")
    signed = np.array(_converted(bits, "stablehlo.convert", "i64"))
    return np.where(signed < 0, -(2 ** (width - 1)) - signed, signed)


def _converted(value: ir.Attribute, op: str, element: str) -> ir.Attribute:
    kind = ir.RankedTensorType(ir.DenseElementsAttr(value).type)
    wanted = "x".join([*map(str, kind.shape), element])
    body = f"%0 = {op} %a0 : ({kind}) -> tensor<{wanted}>\nreturn %0 : tensor<{wanted}>"
    return evaluate_text(body, [value], [f"tensor<{wanted}>"])[0]
