"""How lit runs the tests of this folder: ``lit lit_tests`` from the project's root.

Substitutions, beside lit's own (``%s`` the test file, ``%t`` a scratch path):

``%shardpass``  the command line, run by the Python that runs lit
``%filecheck``  the ``filecheck`` package of that Python

``not COMMAND`` is lit's own: it succeeds where COMMAND ends with an error.

With ``--param prove=FOLDER`` each test under ``passes/`` runs with its own pass
taken off the command line; ``tools/lit_lint.py --prove`` then wants it to fail.
"""

import os
import sys
from pathlib import Path

import lit.formats

PROJECT = Path(__file__).resolve().parent.parent


def command(*words):
    """The words as the start of a command in lit's shell, whatever is in them."""
    return " ".join(f"'{word}'" for word in words)


config.name = "shardpass"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = str(PROJECT / "lit_tests")
config.test_exec_root = str(PROJECT / "out" / "lit")

shardpass = command(sys.executable, "-W", "error", "-m", "shardpass")
logs = lit_config.params.get("prove")
if logs:
    without_pass = command(sys.executable, PROJECT / "tools" / "without_pass.py", logs, "%/s")
    shardpass = f"{without_pass} {shardpass}"
# lit comes to its own substitutions, as `%/s` is one, after these.
config.substitutions += [
    ("%shardpass", shardpass),
    ("%filecheck", command(sys.executable, "-m", "filecheck")),
    # lit does not quote them, and the folder of a checkout may have a space in its name.
    ("%s", command("%/s")),
    ("%S", command("%/S")),
    ("%t", command("%/t")),
]

config.environment.update(
    # The package of this checkout, installed or not.
    PYTHONPATH=os.pathsep.join(
        path for path in (str(PROJECT), os.environ.get("PYTHONPATH")) if path
    ),
    JAX_PLATFORMS="cpu",
    # Messages are compared as plain text of one width.
    NO_COLOR="1",
    COLUMNS="120",
)
