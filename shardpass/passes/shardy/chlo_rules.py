"""How CHLO's ops may be sharded, which Shardy does not know.

JAX lowers ``square``, ``erf``, ``top_k`` and many more to CHLO. Shardy's registry has rules for
StableHLO alone, so that propagation stops at each of them; it says so for the first such op of a
process and is silent about the rest. XLA itself does not meet the problem, since it expands CHLO
before it propagates. Here each op gets its rule as the attribute ``sdy.sharding_rule``, which
Shardy takes before it looks into its registry; the program stays as it is.

The rules follow "Sharding rules" in Shardy's documentation: a factor for each dimension that
operands and results share.
"""

from __future__ import annotations

from typing import Final

from jax.extend.mlir import ir

from shardpass.mlir.element_types import static_shape

RULE: Final = "sdy.sharding_rule"
#: How the names of CHLO's ops begin.
CHLO: Final = "chlo."

#: One element of each result from one element of each operand.
_ELEMENTWISE: Final = frozenset(
    {
        "chlo.acos",
        "chlo.acosh",
        "chlo.asin",
        "chlo.asinh",
        "chlo.atan",
        "chlo.atanh",
        "chlo.bessel_i1e",
        "chlo.conj",
        "chlo.cosh",
        "chlo.digamma",
        "chlo.erf",
        "chlo.erf_inv",
        "chlo.erfc",
        "chlo.is_inf",
        "chlo.is_neg_inf",
        "chlo.is_pos_inf",
        "chlo.lgamma",
        "chlo.mulhi",
        "chlo.next_after",
        "chlo.polygamma",
        "chlo.sinh",
        "chlo.square",
        "chlo.tan",
        "chlo.zeta",
    }
)
#: The same, where no operand has to be broadcast.
_BROADCASTING: Final = "chlo.broadcast_"
_TOP_K: Final = "chlo.top_k"
#: How Shardy's parser names factors.
_FACTORS: Final = "ijklmnopqrstuvwxyz"

_Shapes = tuple[tuple[int, ...], ...]


class ChloRules:
    """Writes a sharding rule onto each CHLO op that has none and is known here."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, _Shapes, _Shapes], ir.Attribute | None] = {}

    def add(self, op: ir.Operation, name: str) -> None:
        """Write the rule of ``op``, whose ``name`` begins with :data:`CHLO`."""
        if RULE in op.attributes:
            return
        operands, results = _shapes(op.operands), _shapes(op.results)
        if operands is None or results is None:
            return
        key = (name, operands, results)
        if key not in self._written:
            text = _rule(*key)
            self._written[key] = ir.Attribute.parse(text, op.context) if text else None
        rule = self._written[key]
        if rule is not None:
            op.attributes[RULE] = rule


def _shapes(values: ir.OpOperandList | ir.OpResultList) -> _Shapes | None:
    """The static shapes of ``values``, or ``None`` where one has none."""
    shapes: list[tuple[int, ...]] = []
    for value in values:
        shape = static_shape(value.type)
        if shape is None:
            return None
        shapes.append(shape)
    return tuple(shapes)


def _rule(name: str, operands: _Shapes, results: _Shapes) -> str | None:
    if name == _TOP_K:
        return _top_k_rule(operands, results)
    if name in _ELEMENTWISE or name.startswith(_BROADCASTING):
        return _elementwise_rule(operands, results)
    return None


def _elementwise_rule(operands: _Shapes, results: _Shapes) -> str | None:
    shape = results[0]
    if len(shape) > len(_FACTORS) or any(s != shape for s in (*operands, *results)):
        return None
    return _text(
        [_FACTORS[: len(shape)]] * len(operands),
        [_FACTORS[: len(shape)]] * len(results),
        dict(zip(_FACTORS, shape, strict=False)),
    )


def _top_k_rule(operands: _Shapes, results: _Shapes) -> str | None:
    """Rows are independent; a row's elements and the ones taken from it are not the same."""
    shape = operands[0]
    if not shape or len(shape) + 1 > len(_FACTORS):
        return None
    rows, element, taken = _FACTORS[: len(shape) - 1], *_FACTORS[len(shape) - 1 : len(shape) + 1]
    sizes = dict(zip(rows, shape, strict=False)) | {element: shape[-1], taken: results[0][-1]}
    return _text([rows + element], [rows + taken] * len(results), sizes, whole=(element, taken))


def _text(
    operands: list[str], results: list[str], sizes: dict[str, int], whole: tuple[str, ...] = ()
) -> str:
    """The rule as text; the factors ``whole`` are gathered before the op."""

    def side(values: list[str]) -> str:
        return ", ".join(f"[{', '.join(factors)}]" for factors in values)

    factors = ", ".join(f"{factor}={size}" for factor, size in sizes.items())
    factors = f" {{{factors}}}" if factors else ""
    replicated = f" need_replication={{{', '.join(whole)}}}" if whole else ""
    return f"#sdy.op_sharding_rule<({side(operands)})->({side(results)}){factors}{replicated}>"
