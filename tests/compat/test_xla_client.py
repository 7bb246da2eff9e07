"""The private names that a run by hand stands on; each says what moved."""

import subprocess
import sys

import jax
import pytest

from shardpass.compat import xla_client


def test_device_list_keeps_the_devices_in_order():
    """``jaxlib.xla_client.DeviceList``: what ``backend.compile_and_load`` takes."""
    devices = tuple(jax.devices()[::-1])
    assert list(xla_client.DeviceList(devices)) == list(devices)


def test_backends_are_initialized_says_so_once_they_are():
    """``jax._src.xla_bridge.backends_are_initialized``: after it the device count is fixed."""
    jax.devices()
    assert xla_client.backends_are_initialized() is True
    with pytest.raises(RuntimeError, match="jax_num_cpu_devices"):
        jax.config.update("jax_num_cpu_devices", 3)


def test_initialize_lapack_gives_the_kernels_their_routines():
    """``jaxlib.lapack.prepare_lapack_call``: without it a lowered Cholesky factorisation, run by a
    process that lowered none, is a segmentation fault; it loads scipy's routines."""
    program = """
import sys
from shardpass.compat import xla_client
before = "scipy.linalg.cython_lapack" in sys.modules
xla_client.initialize_lapack()
print(before, "scipy.linalg.cython_lapack" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr
