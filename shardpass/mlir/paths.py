"""One spelling for the names that users give to arguments and results.

JAX writes the place of a leaf in its pytree as Python would index it, in several dialects:
``st['h'][0]['fc']['kernel'].value`` (Flax NNX), ``params["w"]``, ``state.opt_state[0].mu``,
``x[<flat index 0>]``. People write rules against them, so there is one spelling everywhere: the
steps joined by dots, without quotes, brackets or a trailing ``.value``. The raw spelling is kept
beside it, and a regex is searched in both.
"""

from __future__ import annotations

import ast
import re
import warnings

_STEP = re.compile(
    r"""
      \[<flat\ index\ (?P<flat>\d+)>\]
    | \[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]
    | \[(?P<index>[^\]]*)\]
    | \.?(?P<name>[^.\[\]]+)
    """,
    re.VERBOSE,
)

#: Names made of words alone, which is nearly all there are; they need no reading step by step.
_PLAIN = re.compile(r"\w+(?:\.\w+|\['[\w./-]+'\]|\[\d+\])*")


def dotted(raw: str) -> str:
    """``st['h'][0]['fc']['kernel'].value`` -> ``st.h.0.fc.kernel``.

    A key is kept as it is, dots and slashes included. What is not in JAX's spelling comes back with
    its brackets replaced as far as they can be read, never an error.
    """
    if _PLAIN.fullmatch(raw):
        return (
            raw.removesuffix(".value")
            .replace("['", ".")
            .replace("']", "")
            .replace("[", ".")
            .replace("]", "")
        )
    steps: list[str] = []
    position = 0
    while position < len(raw):
        found = _STEP.match(raw, position)
        if not found:
            steps.append(raw[position:].strip(".[]'\""))
            break
        position = found.end()
        if found["quoted"] is not None:
            steps.append(_unquoted(found["quoted"]))
        else:
            steps.append(
                next(s for s in (found["flat"], found["index"], found["name"]) if s is not None)
            )
    steps = [step for step in steps if step]
    if len(steps) > 1 and raw.endswith(".value"):
        steps.pop()
    return ".".join(steps)


def _unquoted(literal: str) -> str:
    try:
        with warnings.catch_warnings(action="ignore"):  # Of escapes that Python does not know.
            return str(ast.literal_eval(literal))
    except (SyntaxError, ValueError):
        return literal[1:-1]


def result_name(info: str | None, index: int, count: int) -> tuple[str, str]:
    """``(raw, dotted)`` name of result ``index`` of ``count``, from its ``jax.result_info``.

    Older JAX leaves out the leading ``result``; a result without a name is ``result``, or
    ``result.3`` where there are several.
    """
    if info is None:
        raw = "result" if count == 1 else f"result[{index}]"
    else:
        raw = info if info.startswith("result") else f"result{info}"
    return raw, dotted(raw)
