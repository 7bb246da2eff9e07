"""How lit runs the tests of a suite."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

#: The parameter of lit (``--param``) that names the folder which :mod:`shardpass.lit.prove` made.
PROVE = "shardpass-prove"
#: The file in that folder by which a suite says that it uses this kit.
CONFIGURED = "configured"

INSTALL = "pip install 'shardpass[lit]'"

_DEVICES_FLAG = "--xla_force_host_platform_device_count"
#: Minor versions that an older major version may have had.
_MINORS = 100


def configure(
    config: Any,
    lit_config: Any,
    *,
    devices: int = 1,
    name: str | None = None,
    suffixes: Sequence[str] = (".mlir", ".test"),
    excludes: Sequence[str] = ("Inputs",),
    root: str | os.PathLike[str] | None = None,
    exec_root: str | os.PathLike[str] | None = None,
) -> None:
    """Fill lit's ``config`` for tests of ``shardpass opt``; call it from a ``lit.cfg.py``.

    Substitutions, beside lit's own (``%s`` the test, ``%S`` its folder, ``%t`` a scratch path):

    ``%shardpass``  the command line, run by the Python that runs lit
    ``%filecheck``  the ``filecheck`` package of that Python
    ``%devices``    how many devices there are

    A path may have spaces: where one of the suite's has, ``%s``, ``%S`` and ``%t`` come quoted, so
    that a test which has them in double quotes takes them out: ``"rules='"%S/r.toml"'"``.

    Features, for ``REQUIRES``, ``UNSUPPORTED``, ``XFAIL`` and ``%if``: ``jax-0.12`` and
    ``python-3.12``, where the versions are just these, ``jax-0.10+`` and ``python-3.11+`` for
    these or newer ones.

    The environment is lit's (``PATH``, ``HOME`` and the like) with the user's ``PYTHONPATH``,
    virtual CPU devices, and messages without color, 120 columns wide. The shell is lit's own. All
    of it can be changed behind the call. The temporary folder, where modules go on which passes
    failed, is one of lit's, which lit removes when it ends unless ``LIT_PRESERVES_TMP`` is set.

    Args:
      config: lit's name of this name in a ``lit.cfg.py``.
      lit_config: likewise.
      devices: how many virtual CPU devices JAX sees, at least 1.
      name: the suite's, in lit's output; by default that of its folder.
      suffixes: how the names of tests end, dot included.
      excludes: names of files and folders that hold no tests.
      root: the suite's folder; by default that of the file which calls this.
      exec_root: where tests write; by default ``Output`` in the suite's folder.
    """
    if importlib.util.find_spec("filecheck") is None:
        lit_config.fatal(f"shardpass.lit needs the package filecheck: {INSTALL}")
    if devices < 1:
        lit_config.fatal(f"shardpass.lit: devices={devices}, and a test needs one at least")
    import lit.formats

    source = Path(root or Path(_calling_file()).parent).resolve()
    proof = lit_config.params.get(PROVE)
    scratch = Path(proof, "scratch") if proof else Path(exec_root or source / "Output").resolve()

    config.name = name or source.name
    config.test_format = lit.formats.ShTest(execute_external=False)
    config.suffixes = list(suffixes)
    config.excludes = list(excludes)
    config.test_source_root = str(source)
    config.test_exec_root = str(scratch)
    config.available_features.update(version_features("jax", metadata.version("jax")))
    config.available_features.update(version_features("python", sysconfig.get_python_version()))

    command = shlex.join([sys.executable, "-m", "shardpass"])
    if proof:
        Path(proof, CONFIGURED).touch()
        command = f"{shlex.join([sys.executable, '-m', 'shardpass.lit.switch', proof])} '%/s'"
    # lit comes to its own substitutions, as `%/s` is one, after these.
    config.substitutions += [
        (r"%shardpass\b", command),
        (r"%filecheck\b", shlex.join([sys.executable, "-m", "filecheck"])),
        (r"%devices\b", str(devices)),
        *(_quoted(letter) for letter in "sS" if _needs_quotes(source)),
        *(_quoted(letter) for letter in "t" if _needs_quotes(scratch)),
    ]
    config.environment.update(
        JAX_PLATFORMS="cpu",
        XLA_FLAGS=f"{_DEVICES_FLAG}={devices}",
        NO_COLOR="1",
        COLUMNS="120",
        PYTHONPATH=os.pathsep.join(_python_path()),
    )


def version_features(name: str, version: str) -> set[str]:
    """``{"jax-0.2", "jax-0.0+", "jax-0.1+", "jax-0.2+"}`` for jax 0.2.5: lit has no ``>=``."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return set()
    major, minor = int(numbers[1]), int(numbers[2])
    reached = [(older, m) for older in range(major) for m in range(_MINORS)]
    reached += [(major, m) for m in range(minor + 1)]
    return {f"{name}-{major}.{minor}", *(f"{name}-{a}.{b}+" for a, b in reached)}


def _calling_file() -> str:
    """The file two calls up: lit gives each configuration file its ``__file__``."""
    return sys._getframe(2).f_globals["__file__"]


def _needs_quotes(path: Path) -> bool:
    return shlex.quote(str(path)) != str(path)


def _quoted(letter: str) -> tuple[str, str]:
    # `%t1` and `%t.mlir` begin with a path, `%strip` of a user's own does not.
    return rf"%{letter}(?![A-Za-z_])", f"'%/{letter}'"


def _python_path() -> list[str]:
    """The package that runs here, installed or not, and what the user put on the path."""
    home = Path(__file__).resolve().parents[2]
    installed = [Path(sysconfig.get_path(key)).resolve() for key in ("purelib", "platlib")]
    own = [] if home in installed else [str(home)]
    # Tests run in folders of their own, where a relative path says something else.
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return [*own, *map(os.path.abspath, paths)]
