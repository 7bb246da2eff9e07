"""``register_exclusion``, of both modules: frames of ours that JAX takes for its own."""

import traceback

import jax
import pytest

from shardpass.compat import tracebacks


def test_leave_out(tmp_path):
    file = tmp_path / "between.py"
    file.write_text("def call(function, x):\n    return function(x)\n")
    names: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), names)

    def fail(x):
        raise KeyError("here")

    def frames():
        with pytest.raises(KeyError) as caught:
            jax.jit(lambda x: names["call"](fail, x))(1.0)
        return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]

    def locations():
        function = jax.jit(lambda x: names["call"](lambda x: x * 2, x))
        return function.lower(1.0).as_text(debug_info=True)

    assert "call" in frames()
    assert "between.py" in locations()
    tracebacks.leave_out(str(tmp_path))
    assert "call" not in frames()
    assert "fail" in frames()
    assert "between.py" not in locations()
