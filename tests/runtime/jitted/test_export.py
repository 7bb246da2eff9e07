"""``shardpass.export``: files with a plan in them, in processes that know nothing of shardpass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.export
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import shardpass
from shardpass import ShardingError
from tests.runtime.jitted.steps import RULES, batch, mesh_of, parameters, same, train_step

PLAIN_JAX = """
import sys, jax, numpy as np
exported = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
sizes = tuple(map(int, sys.argv[2].split(",")))
mesh = jax.make_mesh(sizes, ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
leaves, tree = jax.tree.flatten((tuple(np.load(sys.argv[3], allow_pickle=True)["arguments"]), {}))
places = exported.in_shardings_jax(mesh)
placed = [a if s is None else jax.device_put(a, s) for a, s in zip(leaves, places)]
args, kwargs = jax.tree.unflatten(tree, placed)
new, loss = jax.jit(exported.call)(*args, **kwargs)
assert "shardpass" not in sys.modules
print(float(loss), new["up"].sharding.spec, len(new["up"].sharding.device_set))
"""


def run_in_plain_jax(file: Path, sizes: str, devices: int) -> list[str]:
    inputs = file.with_suffix(".npz")
    arguments = np.empty(2, dtype=object)
    arguments[:] = [parameters(), batch()]
    np.savez(inputs, arguments=arguments)
    environment = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": "",
    }
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_JAX, str(file), sizes, str(inputs)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(maxsplit=1)


class TestExported:
    def test_a_plain_process_runs_it_with_the_plan(self, tmp_path: Path):
        step = shardpass.jit(train_step, mesh=mesh_of(), rules=RULES)
        exported = shardpass.export(step)(parameters(), batch())
        assert exported.nr_devices == 8
        file = tmp_path / "step.exported"
        file.write_bytes(exported.serialize())
        loss, rest = run_in_plain_jax(file, "2,4", 8)
        same(float(loss), train_step(parameters(), batch())[1])
        assert rest.strip().removeprefix("PartitionSpec").removeprefix("P") == "(None, 'model') 8"

    def test_retargeted_to_fewer_devices(self, tmp_path: Path):
        mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
        step = shardpass.jit(train_step, mesh=mesh, rules=RULES)
        exported = shardpass.export(step)(parameters(), batch())
        moved = shardpass.run_pipeline(exported, "sp-retarget{mesh=data=2,model=2}").module
        file = tmp_path / "step.exported"
        shardpass.save(moved, file)
        loss, rest = run_in_plain_jax(file, "2,2", 4)
        same(float(loss), train_step(parameters(), batch())[1])
        assert rest.strip().endswith("4")

    def test_a_manual_computation_over_a_changed_axis_is_refused(self):
        mesh = mesh_of()
        summed = jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
        f = shardpass.jit(summed, mesh=mesh, rules=[("", P("data"))])
        exported = shardpass.export(f)(np.ones(8, np.float32))
        with pytest.raises(ShardingError, match="manual"):
            shardpass.run_pipeline(exported, "sp-retarget{mesh=data=4,model=2}")

    def test_for_platforms_that_are_not_here(self):
        mesh = AbstractMesh((16, 32), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
        f = shardpass.jit(lambda x: x * 2, mesh=mesh, rules=[("^x$", P("data"))])
        exported = shardpass.export(f, platforms=["tpu"])(jax.ShapeDtypeStruct((64,), np.float32))
        assert (exported.nr_devices, exported.platforms) == (512, ("tpu",))

    def test_arguments_by_name(self):
        f = shardpass.jit(lambda x, w: x - w, mesh=mesh_of(), rules=[("^x$", P("data"))])
        x, w = np.ones(8, np.float32), np.full(8, 5, np.float32)
        exported = jax.export.deserialize(shardpass.export(f)(x, w=w).serialize())
        places = exported.in_shardings_jax(mesh_of())
        same(
            exported.call(*map(jax.device_put, (x,), places), w=jax.device_put(w, places[1])), x - w
        )
        both = shardpass.export(f)(w=w, x=x)
        assert both.in_tree == jax.tree.structure(((), {"x": x, "w": w}))

    def test_a_call_inside_another_function_of_shardpass_jit(self):
        f = shardpass.jit(lambda x: x * 2, mesh=mesh_of(), rules=[("^x$", P("data"))])
        x = np.arange(8, dtype=np.float32)
        exported = shardpass.export(f)(x)
        outer = shardpass.jit(
            lambda x: exported.call(x) + 1, mesh=mesh_of(), rules=[("^x$", P("data"))]
        )
        same(outer(jax.device_put(x, exported.in_shardings_jax(mesh_of())[0])), 2 * x + 1)

    def test_jaxs_own_export_takes_it_too(self):
        f = shardpass.jit(lambda x, w: x - w, mesh=mesh_of(), rules=[("^x$", P("data"))])
        x = np.ones(8, np.float32)
        exported = jax.export.export(f)(x, w=x)
        assert exported.nr_devices == 8
        assert exported.in_tree == jax.tree.structure(((x,), {"w": x}))

    def test_functions_of_jax_are_jaxs_to_export(self):
        with pytest.raises(
            ShardingError, match=r"a function of shardpass.jit, not PjitFunction"
        ) as caught:
            shardpass.export(jax.jit(lambda x: x))
        assert "jax.export.export" in (caught.value.diagnostic.help or "")
