"""Virtual environments of the project: made when first needed, reused while they fit.

Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
OUT = PROJECT / "out"

_STAMP = "shardpass-environment.json"
_PROBE = "import json, sys; print(json.dumps([sys.version.split()[0], sys.executable]))"


class Python(NamedTuple):
    """An interpreter on this machine."""

    version: str  # as in 3.11.7
    executable: str

    @property
    def minor(self) -> str:
        """As in 3.11."""
        return ".".join(self.version.split(".")[:2])


class Environment(NamedTuple):
    """A virtual environment that has the project and its extras installed."""

    folder: Path
    python: str  # version, as in 3.11.7
    jax: str  # version

    def program(self, name: str) -> str:
        """The path of a program in it, such as ``python`` or ``ruff``."""
        return str(self.folder / "bin" / name)

    def __str__(self) -> str:
        return f"Python {self.python}, jax {self.jax}"


def say(text: str) -> None:
    """Print a line at once, so that it stands before what children print."""
    print(text, flush=True)


def probe(executable: str) -> Python | None:
    """What an executable says it is, or None if it does not run."""
    try:
        run = subprocess.run(
            [executable, "-c", _PROBE], capture_output=True, text=True, check=True, timeout=60
        )
        return Python(*json.loads(run.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def this_python() -> Python:
    """The interpreter that runs this."""
    return Python(sys.version.split()[0], sys.executable)


def find_python(minor: str) -> Python | None:
    """A Python of one minor version: this one, one on PATH, or one of pyenv's.

    A pyenv shim that is on PATH but has no version behind it is passed over.
    """
    if this_python().minor == minor:
        return this_python()
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    installed = sorted(
        pyenv.glob(f"versions/{minor}.*/bin/python3"),
        key=lambda path: [int(part) for part in path.parts[-3].split(".") if part.isdigit()],
        reverse=True,
    )
    for candidate in (f"python{minor}", "python3", *map(str, installed)):
        found = probe(candidate)
        if found and found.minor == minor:
            return found
    return None


def child_environment(**changes: str) -> dict[str, str]:
    """This process's environment, less what would lead a child to another Python's packages."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
    }
    return {**kept, **changes}


def install_key(project: Path, python: Python, requirements: Sequence[str]) -> dict[str, object]:
    """All that an installed environment depends on; equal keys need no new installation."""
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    installed = {name: settings[name] for name in ("build-system", "project")}
    text = json.dumps(installed, sort_keys=True)
    return {
        "project": str(project),
        "python": [python.version, os.path.realpath(python.executable)],
        "pyproject": hashlib.sha256(text.encode()).hexdigest(),
        "requirements": list(requirements),
    }


def read_stamp(folder: Path) -> Mapping[str, object]:
    """What the last finished installation in the folder noted; empty if none finished."""
    try:
        return json.loads((folder / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def write_stamp(folder: Path, stamp: Mapping[str, object]) -> None:
    """Note that an installation in the folder is finished, and what it depends on."""
    (folder / _STAMP).write_text(json.dumps(stamp, indent=1), encoding="utf-8")


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the project's lock of that name; wait while another command holds it."""
    OUT.mkdir(exist_ok=True)
    with (OUT / f".lock{name}").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: another command is at work on it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_environment(
    name: str, python: Python, extras: Sequence[str], pins: Sequence[str] = ()
) -> Environment:
    """The environment ``name`` in the project's folder, made or brought up to date if need be.

    Args:
      name: the folder's name, such as ``.venv``.
      python: the interpreter it is made of.
      extras: the extras of pyproject.toml to install.
      pins: further requirements, such as ``jax==0.10.2``; without any, pip
        takes the newest jax that this Python can have.

    An installation that was interrupted leaves no stamp and starts over.
    """
    folder = PROJECT / name
    requirements = [f"{PROJECT}[{','.join(extras)}]", *pins]
    key = install_key(PROJECT, python, requirements)
    with locked(name):
        stamp = read_stamp(folder)
        if stamp.get("key") != key or probe(str(folder / "bin" / "python")) is None:
            before = stamp.get("key")
            keep = isinstance(before, dict) and all(
                before[name] == key[name] for name in ("project", "python")
            )
            stamp = _install(folder, python, requirements, key, keep)
    environment = Environment(folder, python.version, str(stamp["jax"]))
    say(f"{name}: {environment}")
    return environment


def _install(
    folder: Path, python: Python, requirements: Sequence[str], key: object, keep: bool
) -> Mapping[str, object]:
    name = folder.name
    (folder / _STAMP).unlink(missing_ok=True)
    environment = child_environment()
    if not keep:
        say(f"{name}: making it with Python {python.version} ({python.executable})")
        shutil.rmtree(folder, ignore_errors=True)
        run = subprocess.run([python.executable, "-m", "venv", str(folder)], env=environment)
        if run.returncode:
            raise SystemExit(
                f"{name}: `python -m venv` failed; on Debian and Ubuntu it comes with the "
                f"package python{python.minor}-venv"
            )
    say(f"{name}: installing the project and what it needs; the first time takes a few minutes")
    editable = ["--editable", requirements[0], *requirements[1:]]
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    log = OUT / f"pip{name}.log"
    with log.open("wb") as output:
        run = subprocess.run(
            [*pip, "install", "--progress-bar", "off", *editable],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    if run.returncode:
        say(log.read_text(encoding="utf-8", errors="replace"))
        raise SystemExit(f"{name}: pip could not install; what it said stands above")
    version = subprocess.run(
        [str(folder / "bin" / "python"), "-c", "import jax; print(jax.__version__)"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    stamp = {"key": key, "jax": version.stdout.strip()}
    write_stamp(folder, stamp)
    return stamp
