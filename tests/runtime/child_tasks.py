"""What the children of ``test_child.py`` do; functions have to be importable by name."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from shardpass.diagnostics import ShardingError

LAYER = """module @layer {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                  %b: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>})
      -> tensor<8x32xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
    return %0 : tensor<8x32xf32>
  }
}
"""

_LOG = "F1130 02:02:23.260038    7617 hlo_sharding.cc:747] Check failed: leaf_count == 5 (4 vs. 5)"


def halves(first: int, *, last: int, progress: Callable[[str], None]) -> list[float]:
    numbers = range(first, last - 1, -1)
    for number in numbers:
        progress(f"half of {number}")
    return [number / 2 for number in numbers]


def fail_twice() -> None:
    errors = [
        ShardingError("syntax", "first"),
        ShardingError("indivisible", "second", help="pad to 8"),
    ]
    raise ShardingError.of([d for error in errors for d in error.diagnostics])


def divide(a: int, b: int) -> float:
    return a / b


def abort_as_xla_does() -> None:
    print(_LOG, "*** Check failure stack trace: ***", "    @  0x7f absl::Log()", sep="\n",
          file=sys.stderr, flush=True)  # fmt: skip
    os.abort()


def touch_nothing() -> None:
    ctypes.string_at(0)


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(status: int) -> None:
    os._exit(status)


def write_for_ever(folder: str) -> None:
    """Leave a file half written; ``pid`` appears as soon as it is."""
    from shardpass.mlir.files import writing_whole

    with writing_whole(os.path.join(folder, "out")) as file:
        file.write(b"half")
        _tell_pid(folder)
        time.sleep(600)


def hear_nothing(folder: str) -> None:
    """Go on whatever anybody says, as a process does that is inside XLA."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _tell_pid(folder)
    time.sleep(600)


def _tell_pid(folder: str) -> None:
    Path(folder, "new").write_text(str(os.getpid()))
    os.rename(os.path.join(folder, "new"), os.path.join(folder, "pid"))


def talk() -> str:
    print("W1130 02:02:23.260038    7617 a.cc:7] GSPMD is going to go", file=sys.stderr)
    print("*** Begin stack trace ***\n\t\n\t\n*** End stack trace ***\n", file=sys.stderr)
    print("something of its own", file=sys.stderr)
    return "done"


def compile_mhlo_under_shardy() -> list[str]:
    """By hand, since ``compile_module`` refuses it; the shardings that XLA then reports."""
    import jax
    import jax.extend.backend
    import jax.extend.sharding

    from shardpass.compat.xla_client import DeviceList
    from shardpass.mlir import load

    text = """module {
  func.func @main(
      %a: tensor<8x16xf32> {mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"},
      %b: tensor<8x16xf32>) -> tensor<8x16xf32> {
    %0 = stablehlo.add %a, %b : tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
"""
    options = jax.extend.backend.get_compile_options(num_replicas=1, num_partitions=8)
    options.executable_build_options.use_spmd_partitioning = True
    options.executable_build_options.use_shardy_partitioner = True
    devices = jax.devices()
    loaded = devices[0].client.compile_and_load(load(text).ir, DeviceList(tuple(devices)), options)
    read = jax.extend.sharding.get_hlo_sharding_from_serialized_proto
    return [str(read(s.SerializeToString())) for s in loaded.get_parameter_shardings()]


def growth_of_a_check() -> tuple[bool, float]:
    """Check eight donated arrays of 16 MiB; whether it passed, and MiB that the peak rose by."""
    import jax
    import jax.numpy as jnp

    from shardpass.mlir import load
    from shardpass.runtime import check
    from tests.runtime.conftest import annotate

    def peak() -> float:
        # Not `ru_maxrss`, which a new process inherits from the one that started it.
        (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x]
        return int(line.split()[1]) / 2**10

    state = {f"w{i}": jax.ShapeDtypeStruct((2048, 2048), jnp.float32) for i in range(8)}
    step = jax.jit(lambda s: jax.tree.map(jnp.sin, s), donate_argnums=0)
    text = step.lower(state).as_text(debug_info=True)
    text = text.replace("{\n", '{\n  sdy.mesh @mesh = <["x"=2, "y"=4]>\n', 1)
    cut = 'sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>'
    module = load(annotate(text, dict.fromkeys(state, cut)))
    check(load(LAYER))
    before = peak()
    return check(module).ok, peak() - before


def tell_and_write(path: str, progress: Callable[[str], None]) -> None:
    for number in (1, 2):
        progress(f"told {number}\n")
        with open(path, "a") as file:
            file.write(f"written {number}\n")
