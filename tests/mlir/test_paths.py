"""One spelling for the names of arguments and results."""

import re
import string
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardpass.mlir import dotted, load
from shardpass.mlir.paths import result_name


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        # Flax NNX, Linen, plain trees.
        ("st['h'][0]['fc']['kernel'].value", "st.h.0.fc.kernel"),
        ("st['h'][0]['fc']['kernel']", "st.h.0.fc.kernel"),
        ("model.layers[3].w.value", "model.layers.3.w"),
        ('params["w"]', "params.w"),
        ("params['params']['Dense_0']['kernel']", "params.params.Dense_0.kernel"),
        ("arg3", "arg3"),
        # Optax, Equinox, dataclasses, named tuples.
        ("state.opt_state[0].mu['w']", "state.opt_state.0.mu.w"),
        ("opt[1][0].nu", "opt.1.0.nu"),
        # Only a place in a flattened tree is known.
        ("x[<flat index 0>]", "x.0"),
        ("st['a'][<flat index 11>].value", "st.a.11"),
        # Keys with everything in them.
        ("p['a.b/c']", "p.a.b/c"),
        ("p['it\\'s']", "p.it's"),
        ('p["it\'s"]', "p.it's"),
        ("p['x]y[z']", "p.x]y[z"),
        ("p['a\\nb']", "p.a\nb"),
        ("p['\\\\']['b']", "p.\\.b"),
        ("p['']['w']", "p.w"),
        ("p['value']", "p.value"),
        # Keys that are not strings.
        ("p[-1]", "p.-1"),
        ("p[(0, 1)]", "p.(0, 1)"),
        ("p[1.5]['a']", "p.1.5.a"),
        ("p[b'k']", "p.b'k'"),
        ("p[Kind.A]", "p.Kind.A"),
        # A trailing .value goes, any other stays.
        ("value", "value"),
        ("a.value", "a"),
        ("a.value.value", "a.value"),
        ("a.value['b']", "a.value.b"),
        ("a['value']", "a.value"),
        # Never an error.
        ("", ""),
        ("['only']", "only"),
        ("p['a\nb']", "p.a\nb"),
        ("p['\\x']", "p.\\x"),
        ("p['\\d']", "p.\\d"),
        ("p[", "p"),
        ("p['a", "p.a"),
        ("a..b", "a.b"),
        ("]", ""),
    ],
)
def test_spelling(raw: str, path: str) -> None:
    with warnings.catch_warnings(action="error"):
        assert dotted(raw) == path


@given(st.text("ab.[]'\"\\<>flat index0\n ", max_size=30))
@example("'\\N{}'")
def test_no_text_is_an_error_and_dotted_names_stay(raw: str) -> None:
    """Total; and what comes out keeps no bracket of an index that could be read."""
    with warnings.catch_warnings(action="error"):
        path = dotted(raw)
    assert isinstance(path, str)
    if re.fullmatch(r"\w+(\.\w+)*", raw) and not raw.endswith(".value"):
        assert path == raw


KEYS = st.text(min_size=1, max_size=8).filter(lambda key: key != "value")
STEPS = st.one_of(
    KEYS.map(lambda key: (f"[{key!r}]", key)),
    st.integers(-3, 40).map(lambda i: (f"[{i}]", str(i))),
    st.text(string.ascii_letters + "_", min_size=1, max_size=8)
    .filter(lambda name: name != "value")
    .map(lambda name: (f".{name}", name)),
    st.integers(0, 9).map(lambda i: (f"[<flat index {i}>]", str(i))),
)


@given(st.lists(STEPS, max_size=5), st.booleans())
def test_steps_come_back_joined_by_dots(steps: list[tuple[str, str]], is_variable: bool) -> None:
    raw = "root" + "".join(written for written, _ in steps) + (".value" if is_variable else "")
    assert dotted(raw) == ".".join(["root", *(step for _, step in steps)])


class Pair(NamedTuple):
    first: Any
    second: Any


@jax.tree_util.register_pytree_node_class
class Flat:
    """A node without keys: JAX knows only the place of a leaf in it."""

    def __init__(self, *leaves: Any) -> None:
        self.leaves = leaves

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return self.leaves, None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: tuple[Any, ...]) -> "Flat":
        return cls(*leaves)


def test_names_that_jax_records() -> None:
    x = jnp.zeros(3)

    def step(params: Any, pair: Pair, flat: Flat) -> Any:
        total = sum(jax.tree.leaves((params, pair, flat)))
        return {"loss": total, "new": Pair(total, [total])}, total

    arguments = ({"a.b": x, "c'd": [x, (x,)]}, Pair(x, {"k": x}), Flat(x, x))
    module = load(jax.jit(step).lower(*arguments))
    assert [value.path for value in module.arguments] == [
        "params.a.b",
        "params.c'd.0",
        "params.c'd.1.0",
        "pair.first",
        "pair.second.k",
        "flat.0",
        "flat.1",
    ]
    assert [value.path for value in module.results] == [
        "result.0.loss",
        "result.0.new.first",
        "result.0.new.second.0",
        "result.1",
    ]
    again = load(module.text().encode())
    assert [v.path for v in again.arguments] == [v.path for v in module.arguments]
    assert [v.raw for v in again.arguments] == [v.raw for v in module.arguments]


@pytest.mark.parametrize(
    ("info", "index", "count", "raw", "path"),
    [
        (None, 0, 1, "result", "result"),
        (None, 2, 3, "result[2]", "result.2"),
        ("", 0, 1, "result", "result"),
        ("[0]['w']", 0, 2, "result[0]['w']", "result.0.w"),
        ("result[0]['w']", 0, 2, "result[0]['w']", "result.0.w"),
        ("result.mu.value", 0, 2, "result.mu.value", "result.mu"),
    ],
)
def test_names_of_results(info: str | None, index: int, count: int, raw: str, path: str) -> None:
    assert result_name(info, index, count) == (raw, path)
