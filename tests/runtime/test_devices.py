"""How many devices there are, and how to have more of them."""

from __future__ import annotations

import jax
import pytest

from shardpass.diagnostics import ShardingError
from shardpass.runtime import devices_for, request_cpu_devices
from tests.runtime.fresh import run_python

HLO = "HloModule p\nENTRY e { ROOT a = f32[] parameter(0) }"


@pytest.mark.parametrize(
    ("before", "flags", "found"),
    [
        ("", None, 5),
        ("import jax", None, 5),
        ("import jax.numpy", "--xla_force_host_platform_device_count=2", 5),
        ("", "--xla_force_host_platform_device_count=2 --xla_cpu_use_onednn=false", 5),
        ("", "--xla_force_host_platform_device_count=7", 7),
        ("import jax; jax.config.update('jax_num_cpu_devices', 3)", None, 5),
        ("import jax; jax.config.update('jax_num_cpu_devices', 6)", None, 6),
        # XLA reads its flags when it reads HLO.
        (f"import shardpass; shardpass.load({HLO!r})", None, 5),
    ],
)
def test_asked_for_in_time(before: str, flags: str | None, found: int):
    told = run_python(
        f"""
        {before}
        from shardpass.runtime import request_cpu_devices
        request_cpu_devices(5)
        import jax, os
        print(jax.device_count())
        """,
        XLA_FLAGS=flags,
    )
    assert int(told) == found


def test_other_flags_are_kept():
    told = run_python(
        """
        import os
        from shardpass.runtime import request_cpu_devices
        request_cpu_devices(4)
        print(os.environ["XLA_FLAGS"])
        """,
        XLA_FLAGS="--a=1 --xla_force_host_platform_device_count=2 --b=2",
    )
    assert told.split() == ["--a=1", "--b=2", "--xla_force_host_platform_device_count=4"]


@pytest.mark.parametrize(("said", "threads"), [(None, "24"), ("5", "5")])
def test_threads_for_collectives_that_wait(said: str | None, threads: str):
    """Six devices, four collectives each may wait in XLA's pool; what the user says holds."""
    told = run_python(
        """
        import os
        from shardpass.runtime import request_cpu_devices
        request_cpu_devices(6)
        print(os.environ["PJRT_NPROC"])
        """,
        PJRT_NPROC=said,
    )
    assert told.strip() == threads


def test_asking_does_not_import_jax():
    told = run_python(
        """
        import sys
        from shardpass.runtime import request_cpu_devices
        request_cpu_devices(4)
        print("jax" in sys.modules)
        """
    )
    assert told.strip() == "False"


def test_too_late():
    jax.devices()
    request_cpu_devices(8)
    with pytest.raises(ShardingError, match="9 devices asked for, but there are 8 ") as caught:
        request_cpu_devices(9)
    assert caught.value.slug == "not-enough-devices"
    assert "XLA_FLAGS=--xla_force_host_platform_device_count=9" in (
        caught.value.diagnostic.help or ""
    )


def test_a_count_takes_them_from_the_front():
    assert devices_for(3) == tuple(jax.devices()[:3])


@pytest.mark.parametrize("count", [0, -1])
def test_no_devices(count: int):
    for ask in (devices_for, request_cpu_devices):
        with pytest.raises(ShardingError):
            ask(count)
    with pytest.raises(ShardingError):
        devices_for([])
