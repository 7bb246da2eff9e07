"""Every command on every form, from a file and from standard input, and what --emit writes.

Each case is a call of the command line's own ``main`` in one process that has the imports done; the
work of each is in a child of its own, as always.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from shardpass.compat import hlo_import
from shardpass.mlir import FORMS, load
from tests.cli.conftest import PROJECT, Run

_DRIVER = """
import contextlib, io, json, os, sys
import jax.extend.mlir
import shardpass.runtime, shardpass.passes
from shardpass.cli.main import main

def run(words, given):
    streams = [os.dup(n) for n in range(3)]
    with open("out", "w+b") as out, open("err", "w+b") as err, open(given or os.devnull) as told:
        for number, file in enumerate((told, out, err)):
            os.dup2(file.fileno(), number)
        try:
            main(words)
            code = 0
        except SystemExit as ended:
            code = ended.code
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        out.seek(0), err.seek(0)
        return code, out.read().decode("latin-1"), err.read().decode("latin-1")

print(json.dumps([run(words, given) for words, given in json.loads(sys.stdin.read())]))
"""

HLO = """\
HloModule step, entry_computation_layout={(f32[16,8]{1,0}, f32[4,16]{1,0})->f32[4,8]{1,0}}

ENTRY main {
  w = f32[16,8]{1,0} parameter(0), metadata={op_name="params['w']"}
  x = f32[4,16]{1,0} parameter(1), metadata={op_name="x"}
  d = f32[4,8]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[4,8]{1,0} tanh(d)
}
"""
RULES = """\
[mesh]
data = 2
model = 2

[[rule]]
match = '^x$'
spec = ["data"]

[[rule]]
match = '^params\\.w$'
spec = [[], "model"]
"""


def step(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ params["w"])


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one program in every form, and rules for it."""
    folder = tmp_path_factory.mktemp("forms")
    shapes = (
        {"w": jax.ShapeDtypeStruct((16, 8), "float32")},
        jax.ShapeDtypeStruct((4, 16), "float32"),
    )
    exported = export.export(jax.jit(step))(*shapes)
    module = load(exported)
    contents = {
        "text": module.to_bytes("text"),
        "bytecode": module.bytecode(),
        "portable": gzip.compress(exported.mlir_module_serialized),
        "exported": bytes(exported.serialize()),
        "hlo": HLO.encode(),
        "hlo-proto": hlo_import.proto_of_text(HLO),
    }
    for form, content in contents.items():
        (folder / form).write_bytes(content)
    (folder / "r.toml").write_text(RULES)
    return folder


def run_all(folder: Path, cases: list[tuple[list[str], str | None]]) -> list[tuple[int, str, str]]:
    """Exit code, standard output and standard error of each command line."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_DRIVER)],
        input=json.dumps(cases),
        cwd=folder,
        env={"PYTHONPATH": str(PROJECT), "JAX_PLATFORMS": "cpu", "NO_COLOR": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(each) for each in json.loads(done.stdout)]


def test_every_command_reads_every_form(forms: Path) -> None:
    cases: list[tuple[list[str], str | None]] = []
    for number, form in enumerate(FORMS):
        # Half of them by standard input.
        file, given = ("-", form) if number % 2 else (form, None)
        cases += [
            (["shard", file, "-o", f"{form}.sharded", "--rules", "r.toml"], given),
            (["opt", file, "--sp-annotate=rules=r.toml"], given),
            (["report", file, "--json"], given),
            (["run", f"{form}.sharded", "--check", "--json"], None),
        ]
    found = iter(run_all(forms, cases))
    for form in FORMS:
        for command in ("shard", "opt", "report", "run"):
            code, out, err = next(found)
            assert code == 0, (form, command, err)
            if command == "opt":
                assert '{sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}' in out
            if command == "report":
                arguments = json.loads(out)["arguments"]
                assert [each["path"] for each in arguments] == ["params.w", "x"]
            if command == "run":
                assert json.loads(out)["ok"] is True
        written = load(forms / f"{form}.sharded")
        # An Exported stays one; the rest is text under such a name.
        assert written.form == ("exported" if form == "exported" else "text")


def test_what_emit_writes(forms: Path) -> None:
    passes = ["--sp-annotate=rules=r.toml", "--sp-export-mhlo"]
    cases: list[tuple[list[str], str | None]] = [
        (["opt", "exported", *passes, "--emit", form, "-o", f"{form}.emitted"], None)
        for form in FORMS
    ]
    cases += [
        (["shard", "exported", "--rules", "r.toml", *words], None)
        for words in (["-o", "a.mlir"], ["-o", "a.mlirbc"], ["-o", "a.mlir", "--emit", "portable"])
    ]
    cases += [
        (["shard", "exported", "--rules", "r.toml", "-o", "-"], None),
        (["opt", "exported", "--emit", "portable=1.9.0"], None),
    ]
    found = run_all(forms, cases)
    for words, _ in cases:
        code, _, err = found[cases.index((words, None))]
        assert code == 0, (words, err)
    for form in FORMS:
        assert load(forms / f"{form}.emitted").form == form
    assert load(forms / "a.mlir").form == "portable"
    assert load(forms / "a.mlirbc").form == "bytecode"
    # A terminal is for people: text, unless another form is asked for.
    assert load(found[-2][1]).form == "text"
    assert found[-1][1].startswith("ML\xefR\rStableHLO_v1.9.0")


def test_what_is_written_is_called_by_plain_jax(forms: Path) -> None:
    """In a process that has never heard of shardpass."""
    (case,) = run_all(
        forms, [(["shard", "exported", "--rules", "r.toml", "-o", "plain.exported"], None)]
    )
    assert case[0] == 0
    script = """
        import sys, numpy as np, jax
        from jax import export
        from jax.sharding import AxisType
        with open("plain.exported", "rb") as file:
            exported = export.deserialize(bytearray(file.read()))
        mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
        w = np.arange(128, dtype="float32").reshape(16, 8) / 128
        x = np.arange(64, dtype="float32").reshape(4, 16) / 64
        placed = [jax.device_put(a, s) for a, s in zip((w, x), exported.in_shardings_jax(mesh))]
        found = jax.jit(exported.call)({"w": placed[0]}, placed[1])
        assert "shardpass" not in sys.modules
        print(exported.nr_devices, found.sharding.shard_shape((4, 8)))
        print(abs(np.asarray(found) - np.tanh(x @ w)).max() < 1e-5)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=forms,
        env={"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.splitlines() == ["4 (2, 4)", "True"], done.stderr


def test_what_is_refused(forms: Path) -> None:
    """Before the work where that is known, with one message, and nothing is written."""
    np.savez(forms / "arrays.npz", a=np.ones(2))
    whole = (forms / "exported").read_bytes()
    (forms / "cut").write_bytes(whole[: len(whole) // 2])
    rules = ["--rules", "r.toml", "-o", "never"]
    cases: list[tuple[list[str], str | None]] = [
        (["shard", "text", "--emit", "exported", *rules], None),
        (["shard", "text", "--emit", "hlo", *rules], None),
        (["shard", "text", "--emit", "hlo=1.9.0", *rules], None),
        (["report", "arrays.npz"], None),
        (["report", "-"], "cut"),
        (["run", "r.toml"], None),
    ]
    said: list[Any] = [
        (1, "it came as MLIR text, without the pytrees and types of a function"),
        (1, "has Shardy's notation in it, which HLO has not"),
        (2, "a version goes with portable=1.9.0 alone"),
        (1, "arrays.npz is a zip archive (an .npz, a PyTorch checkpoint), and no module"),
        (1, "<stdin> is a serialized jax.export.Exported that is cut short"),
        (1, "error[mlir]"),
    ]
    for (code, _, err), (expected, message) in zip(run_all(forms, cases), said, strict=True):
        assert code == expected, err
        assert message in err
    assert not (forms / "never").exists()


def test_an_abort_over_damaged_hlo_is_an_error(shardpass: Run, folder: Path) -> None:
    """Whatever XLA makes of a damaged proto, the command line says so and ends well."""
    proto = bytearray(hlo_import.proto_of_text(HLO))
    place = proto.index(b"parameter")
    proto[place : place + 9] = b"parametre"
    (folder / "damaged.pb").write_bytes(bytes(proto))
    done = shardpass("report", "damaged.pb")
    assert done.returncode == 1
    assert done.stderr.startswith("error[unreadable]: damaged.pb is HLO that XLA cannot read: ")


@jax.custom_vjp
def sine(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


def _forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.sin(x), x


def _backward(x: jax.Array, out: jax.Array) -> tuple[jax.Array]:
    """Cut over an axis that the function itself does not use."""
    place = NamedSharding(_MESH, PartitionSpec(None, "model"))
    return (jax.lax.with_sharding_constraint(out * jnp.cos(x), place),)


_MESH = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
sine.defvjp(_forward, _backward)


def test_gradients_go_where_the_function_goes_or_are_missed(shardpass: Run, folder: Path) -> None:
    place = NamedSharding(_MESH, PartitionSpec("data"))
    function = export.export(
        jax.jit(sine, in_shardings=place, out_shardings=place), platforms=["cpu"]
    )(jax.ShapeDtypeStruct((8, 4), "float32"))
    (folder / "sine.exported").write_bytes(function.serialize(vjp_order=1))
    moved = shardpass(
        "opt", "sine.exported", "--sp-retarget=mesh=data=4,model=2", "-o", "moved.exported"
    )
    assert (moved.returncode, moved.stderr) == (0, "")
    found = export.deserialize(bytearray((folder / "moved.exported").read_bytes()))
    for program in (found.mlir_module(), found.vjp().mlir_module()):
        assert 'sdy.mesh @mesh = <["data"=4, "model"=2]>' in program
    lost = shardpass("opt", "sine.exported", "--sp-retarget=mesh=data=8", "-o", "lost.exported")
    assert lost.returncode == 0
    assert (
        "warning[not-supported]: sine.exported loses its gradient, whose program cannot be brought "
        "to where the function is now"
    ) in lost.stderr
    assert 'axis "model" is not in the mesh data=8' in lost.stderr
    assert "help: export the function anew on the mesh that it has now" in lost.stderr
    assert not export.deserialize(bytearray((folder / "lost.exported").read_bytes())).has_vjp()
