"""The examples run as their users run them: a script in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.settings import EXAMPLES, Export


@pytest.fixture(scope="session")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Run an example's exporter, once for the same options; the file that it wrote."""
    written: dict[tuple[str, ...], Path] = {}

    def run(example: str, *options: str) -> Path:
        key = (example, *options)
        if key not in written:
            path = tmp_path_factory.mktemp(example) / "step.mlir"
            script = EXAMPLES / example / "export_step.py"
            command = [sys.executable, "-W", "error", str(script), "-o", str(path), *options]
            subprocess.run(command, check=True)
            written[key] = path
        return written[key]

    return run
