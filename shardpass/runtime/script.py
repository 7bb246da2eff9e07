"""A script of the user's, run as ``python script.py`` would run it, with something done to JAX.

Nothing of it can tell the difference before it imports jax itself: until then this process has not,
so that what the script sets in the environment or does to the backends counts. Right behind that
import, and before the script goes on, the caller has his turn. The script's output, exit code and
traceback are its own.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

_JAX: Final = "jax"


def run_script(path: str, arguments: Sequence[str], behind_jax: Callable[[], None]) -> None:
    """Run ``path`` as the program of this process.

    Args:
      path: a file of Python, or a folder with a file ``__main__.py``.
      arguments: what it finds in ``sys.argv`` behind its own name.
      behind_jax: called once, when jax has been imported.

    Raises:
      OSError, SyntaxError: where it cannot be read or compiled.
      BaseException: what the script raises, ``SystemExit`` included.
    """
    program = program_of(path) or path
    with io.open_code(program) as file:
        code = compile(file.read(), program, "exec")
    # Pickled functions and multiprocessing look for the script under this name.
    main: Any = types.ModuleType("__main__")
    main.__file__ = program
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", program)
    if os.path.isdir(path):
        main.__package__ = ""
        main.__spec__ = importlib.util.spec_from_file_location("__main__", program)
    main.__builtins__ = sys.modules["builtins"]
    sys.modules["__main__"] = main
    sys.argv[:] = [path, *arguments]
    folder = os.path.abspath(path)
    if not os.path.isdir(path):
        folder = os.path.dirname(os.path.realpath(path))
    if sys.path[:1] == [""]:
        sys.path[0] = folder
    elif not sys.flags.safe_path:
        sys.path.insert(0, folder)
    call_behind_jax(behind_jax)
    exec(code, main.__dict__)


def program_of(path: str) -> str | None:
    """The file that runs for ``path``, absolute as Python has it; ``None`` where there is none."""
    found = os.path.abspath(os.path.join(path, "__main__.py") if os.path.isdir(path) else path)
    return found if os.path.isfile(found) else None


def call_behind_jax(function: Callable[[], None]) -> None:
    """Call ``function`` when jax has been imported, which may be now."""
    if _JAX in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, _BehindJax(function))


class _BehindJax(importlib.abc.MetaPathFinder):
    """Finds jax as everybody does, and has its loader call a function at the end."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def find_spec(
        self, fullname: str, path: Any, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of jax, with another loader; nothing of anything else."""
        if fullname != _JAX:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._function)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, function: Callable[[], None]) -> None:
        self._loader = loader
        self._function = function

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        """As the loader that was found."""
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        """As the loader that was found, and then the function."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._function()
