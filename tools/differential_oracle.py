"""XLA's converters, asked about many modules: the child of ``tools/differential.py``.

    python tools/differential_oracle.py export|import FOLDER < texts.json

Reads a list of texts, and prints one JSON object a module as soon as it has the answer. A module
that ends the process has none. The folder is for what the compiler writes down.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

#: As many as the largest module that is made.
DEVICES = 48


def exported(text: str) -> str | None:
    """The module as it comes back from HLO, with all that XLA wrote on the way there."""
    from jax.extend.mlir import ir
    from jax.interpreters import mlir
    from jaxlib import _jax  # noqa: TID251  # pyright: ignore - XLA's own exporter.

    try:
        computation = _jax.mlir.mlir_module_to_xla_computation(
            text, use_tuple_args=False, return_tuple=False
        )
        data = _jax.mlir.hlo_to_stablehlo(computation.as_serialized_hlo_module_proto())
    except (RuntimeError, ValueError):
        return None
    with mlir.make_ir_context():
        return str(ir.Module.parse(data))


class Importer:
    """XLA's importer, through the compiler, which writes down what it makes before it goes on."""

    def __init__(self, folder: Path) -> None:
        from jax.extend.backend import get_backend

        self._folder = folder
        self._backend = get_backend("cpu")

    def imported(self, text: str, devices: int) -> str | None:
        """The module before propagation, if there is one."""
        import jax
        from jax.extend.mlir import ir
        from jax.interpreters import mlir
        from jaxlib import _jax, xla_client  # noqa: TID251  # pyright: ignore - XLA's compiler.

        options: Any = xla_client.CompileOptions()
        build = options.executable_build_options
        build.num_replicas, build.num_partitions = 1, devices
        build.use_spmd_partitioning = build.use_shardy_partitioner = True
        used = jax.devices()[:devices]
        build.device_assignment = xla_client.DeviceAssignment.create(
            np.arange(devices, dtype=np.int32).reshape(1, devices)
        )
        try:
            with mlir.make_ir_context():
                self._backend.compile_and_load(
                    ir.Module.parse(text), _jax.DeviceList(tuple(used)), options
                )
        except (RuntimeError, ValueError):
            pass  # A custom call that nobody knows: the dump is there.
        return self.written()

    def written(self) -> str | None:
        """What the compiler wrote down, which is removed."""
        dumps = sorted(self._folder.glob("**/*before_propagation.mlir"))
        text = dumps[0].read_text() if dumps else None
        for dump in self._folder.glob("**/*.mlir"):
            dump.unlink()
        return text


def main() -> int:
    """Answer."""
    _, what, folder = sys.argv
    if what == "import":
        _set_flags(folder)
    importer = Importer(Path(folder)) if what == "import" else None
    for text in json.load(sys.stdin):
        if importer is None:
            answer = exported(text)
        else:
            count = int(text.split("num_partitions = ")[1].split(" ")[0])
            answer = importer.imported(text, count)
        print(json.dumps({"answer": answer}), flush=True)
    return 0


def _set_flags(folder: str) -> None:
    from importlib.metadata import version

    flags = [
        f"--xla_force_host_platform_device_count={DEVICES}",
        f"--xla_dump_to={folder}",
        "--xla_dump_hlo_pass_re=.*shardy.*",
    ]
    if tuple(map(int, version("jaxlib").split(".")[:2])) >= (0, 12):
        flags.append("--xla_enable_hlo_sharding_v3=false")
    os.environ["XLA_FLAGS"] = " ".join(flags)


if __name__ == "__main__":
    sys.exit(main())
