"""The private store that processes share; each test says what moved."""

from __future__ import annotations

import socket

from tests.runtime.fresh import run_python

PROGRAM = """
import jax
jax.distributed.initialize(
    "127.0.0.1:PORT", 1, 0,
    coordinator_bind_address="127.0.0.1:PORT",
    cluster_detection_method="deactivate",
    heartbeat_timeout_seconds=10,
    shutdown_timeout_seconds=10,
)
from shardpass.compat import coordination
coordination.put("shardpass/a", "1")
print(coordination.wait_for("shardpass/a", 1000))
try:
    coordination.wait_for("shardpass/b", 100)
except jax.errors.JaxRuntimeError as error:
    print("DEADLINE_EXCEEDED" in str(error))
jax.distributed.shutdown()
"""


def test_a_value_is_put_and_waited_for():
    """``jax._src.distributed.global_state.client``: ``key_value_set`` and
    ``blocking_key_value_get``, with milliseconds. And the public ``jax.distributed.initialize``
    takes both time-outs, under these names."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    assert run_python(PROGRAM.replace("PORT", port)).split() == ["1", "True"]
