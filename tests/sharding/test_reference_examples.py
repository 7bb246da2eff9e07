"""The examples of the ``jax.sharding`` reference, word for word, with shardpass's classes.

``jax.sharding`` in them is read as ``shardpass.sharding``, and nothing else is changed. Where an
example says nothing of its outcome, a line that asks follows it.

Two things in them JAX itself has deprecated, and says so: ``jax.experimental.pjit`` and, for a mesh
of JAX's own, ``with mesh:``. Ours enters the context without a warning.
"""

from __future__ import annotations

import doctest
import importlib
import re
import warnings

import jax
import numpy as np
import pytest

import shardpass.sharding

SINGLE_DEVICE_SHARDING = """
>>> single_device_sharding = jax.sharding.SingleDeviceSharding(
...     jax.devices()[0])
>>> single_device_sharding.device_set == {jax.devices()[0]}
True
>>> single_device_sharding.is_fully_replicated
True
>>> jax.device_put(np.arange(3), single_device_sharding).devices() == {jax.devices()[0]}
True
"""

NAMED_SHARDING = """
>>> from jax.sharding import Mesh
>>> from jax.sharding import PartitionSpec as P
>>> mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ('x', 'y'))
>>> spec = P('x', 'y')
>>> named_sharding = jax.sharding.NamedSharding(mesh, spec)
>>> named_sharding
NamedSharding(Mesh('x': 2, 'y': 4), PartitionSpec('x', 'y'), memory_kind='device')
>>> named_sharding.shard_shape((8, 8))
(4, 2)
>>> jax.device_put(np.zeros((8, 8)), named_sharding).sharding is named_sharding
True
"""

MESH = """
>>> from jax.experimental.pjit import pjit
>>> from jax.sharding import Mesh
>>> from jax.sharding import PartitionSpec as P
>>> import numpy as np
...
>>> inp = np.arange(16).reshape((8, 2))
>>> devices = np.array(jax.devices()).reshape(4, 2)
...
>>> # Declare a 2D mesh with axes `x` and `y`.
>>> global_mesh = Mesh(devices, ('x', 'y'))
>>> # Use the mesh object directly as a context manager.
>>> with global_mesh:
...   out = pjit(lambda x: x, in_shardings=None, out_shardings=None)(inp)
>>> bool((out == inp).all())
True
>>> # Initialize the Mesh and use the mesh as the context manager.
>>> with Mesh(devices, ('x', 'y')) as global_mesh:
...   out = pjit(lambda x: x, in_shardings=None, out_shardings=None)(inp)
>>> bool((out == inp).all()), dict(global_mesh.shape)
(True, {'x': 4, 'y': 2})
>>> # Also you can use it as `with ... as ...`.
>>> global_mesh = Mesh(devices, ('x', 'y'))
>>> with global_mesh as m:
...   out = pjit(lambda x: x, in_shardings=None, out_shardings=None)(inp)
>>> bool((out == inp).all()), m is global_mesh
(True, True)
>>> # You can also use it as `with Mesh(...)`.
>>> with Mesh(devices, ('x', 'y')):
...   out = pjit(lambda x: x, in_shardings=None, out_shardings=None)(inp)
>>> bool((out == inp).all())
True
"""

EXAMPLES = {
    "SingleDeviceSharding": SINGLE_DEVICE_SHARDING,
    "NamedSharding": NAMED_SHARDING,
    "Mesh": MESH,
}

PJIT_IS_DEPRECATED = (
    r"jax\.experimental\.pjit\.pjit has been deprecated\. Please use `jax\.jit` instead\.$"
)
WITH_MESH_IS_DEPRECATED = r"`with mesh:` context manager has been deprecated\."


def has_pjit() -> bool:
    """Whether the installed JAX still has ``jax.experimental.pjit.pjit``."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=PJIT_IS_DEPRECATED, category=DeprecationWarning)
        try:
            return hasattr(importlib.import_module("jax.experimental.pjit"), "pjit")
        except ModuleNotFoundError:
            return False


def with_our_classes(text: str) -> str:
    """``text`` with ``jax.sharding`` read as ``shardpass.sharding``."""
    return re.sub(r"\bjax\.sharding\b", "shardpass.sharding", text)


def with_what_there_is(text: str) -> str:
    """``text`` with ``jax.jit`` for ``pjit`` on a JAX that has no ``pjit`` any more."""
    if has_pjit():
        return text
    return text.replace("from jax.experimental.pjit import pjit", "from jax import jit as pjit")


def run_examples(name: str, text: str) -> None:
    """Run one text of examples, and fail with what doctest says of it."""
    names = {"jax": jax, "np": np, "shardpass": shardpass}
    test = doctest.DocTestParser().get_doctest(text, names, name, __file__, 0)
    assert test.examples
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=told.append)
    assert not told, "".join(told)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_the_reference(name):
    text = with_our_classes(with_what_there_is(EXAMPLES[name]))
    assert "shardpass.sharding" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=PJIT_IS_DEPRECATED, category=DeprecationWarning)
        run_examples(name, text)


def test_our_mesh_alone_enters_without_a_warning():
    """The examples run with JAX's classes too, whose ``with mesh:`` warns; ours adds nothing."""

    def warned(text):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run_examples("Mesh", with_what_there_is(text))
        return {str(warning.message) for warning in caught}

    theirs, ours = warned(MESH), warned(with_our_classes(MESH))
    assert ours == {words for words in theirs if not re.match(WITH_MESH_IS_DEPRECATED, words)}
    assert all(re.match(PJIT_IS_DEPRECATED, words) for words in ours)


def test_a_wrong_outcome_is_found():
    """That the examples pass says something: one that is wrong does not."""
    with pytest.raises(AssertionError, match="Expected"):
        run_examples("wrong", with_our_classes(NAMED_SHARDING.replace("(4, 2)", "(2, 4)")))
