"""How lit runs the tests of this folder: ``lit lit_tests`` from the project's root.

What there is beside lit's own is said at :func:`shardpass.lit.configure`. ``not COMMAND`` is lit's
own: it succeeds where COMMAND ends with an error.
"""

import sys
from pathlib import Path

# The package of this checkout, installed or not.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import shardpass.lit

PROJECT = Path(__file__).resolve().parent.parent

shardpass.lit.configure(config, lit_config, name="shardpass", exec_root=PROJECT / "out" / "lit")
config.environment["PYTHONWARNINGS"] = "error"
