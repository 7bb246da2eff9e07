"""The command line as people run it: a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]

MODULE = """\
module @step {
  func.func public @main(
      %arg0: tensor<8x16xf32> loc("params['w']"),
      %arg1: tensor<19x16xf32> loc("params['odd']"),
      %arg2: tensor<f32> loc("lr")) -> (tensor<8x16xf32> {jax.result_info = "result['y']"}) {
    %0 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<8x16xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<8x16xf32>
    return %1 : tensor<8x16xf32>
  }
}
"""

RULES = """\
[mesh]
data = 2
model = 4

[[rule]]
match = '\\.w$'
spec = ["data", "model"]

[[rule]]
match = 'odd|^lr$|^result'
spec = []
"""

#: What the command line says of a step that took long, as each may on a busy machine.
_SLOW_STEP = re.compile(r"^[^:\n]+: \d+\.\d s\n", re.MULTILINE)

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Holds ``m.mlir`` and ``r.toml``."""
    (tmp_path / "m.mlir").write_text(MODULE)
    (tmp_path / "r.toml").write_text(RULES)
    return tmp_path


@pytest.fixture
def temporary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of what the test runs, and nobody else's."""
    (folder / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    return folder / "tmp"


@pytest.fixture
def shardpass(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs ``shardpass ARGUMENTS`` in ``folder``.

    What failed is kept beside it, where no ``TMPDIR`` is set. Options are those of
    ``subprocess.run``, and ``redirection``, as a shell writes it.
    """

    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {
            "TMPDIR": str(tmp_path_factory.getbasetemp()),
            **os.environ,
            "PYTHONPATH": str(PROJECT),
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "",
            "NO_COLOR": "1",
        }
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        words = [sys.executable, "-W", "error", "-m", "shardpass", *arguments]
        if redirection := options.pop("redirection", ""):
            words = ["sh", "-c", f'exec "$@" {redirection}', "sh", *words]
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            timeout=300,
            check=False,
            **(pipes | options),
        )
        if isinstance(done.stderr, str):
            done.stderr = _SLOW_STEP.sub("", done.stderr)
        return done

    return run
