"""The last jax that has what JAX has dropped since, in an environment of its own, to compare with.

Standard library only.
"""

from __future__ import annotations

import os
import subprocess

from project_environment import (
    OUT,
    PROJECT,
    child_environment,
    find_python,
    locked,
    probe,
    read_stamp,
    say,
    write_stamp,
)

NAME = ".venv-historical"
# 0.4.38 has PositionalSharding and PmapSharding in full; its wheels are for Python 3.10 to 3.13.
REQUIREMENTS = ("jax==0.4.38", "jaxlib==0.4.38", "numpy<2.3")
_MINORS = ("3.11", "3.12", "3.13", "3.10")

# What the tests read: the path of the old jax's Python, or why there is none.
VARIABLE = "SHARDPASS_HISTORICAL_PYTHON"


def offer_historical_jax() -> str | None:
    """Make the environment if need be, and tell the tests of it through :data:`VARIABLE`.

    Where it cannot be made, that is said here and by the tests that are skipped for it.

    Returns:
      Why there is none; ``None`` where there is one.
    """
    given = os.environ.get(VARIABLE)
    if given and probe(given):
        return None
    with locked(NAME):
        fault = _make()
    if fault is None:
        os.environ[VARIABLE] = str(PROJECT / NAME / "bin" / "python")
        say(f"{NAME}: {REQUIREMENTS[0]}, to compare with")
    else:
        os.environ[VARIABLE] = fault
        say(f"{NAME}: {fault}; the tests that compare with it are skipped")
    return fault


def _make() -> str | None:
    folder = PROJECT / NAME
    python = next(filter(None, map(find_python, _MINORS)), None)
    if python is None:
        return f"no Python {', '.join(_MINORS)} here, which {REQUIREMENTS[0]} needs"
    key = {"python": [python.version, python.executable], "requirements": list(REQUIREMENTS)}
    own = str(folder / "bin" / "python")
    if read_stamp(folder).get("key") == key and probe(own):
        return None
    say(f"{NAME}: installing {' '.join(REQUIREMENTS)} for Python {python.version}")
    install = [own, "-m", "pip", "install", "--disable-pip-version-check", "--retries=1"]
    for command in (
        [python.executable, "-m", "venv", "--clear", str(folder)],
        [*install, "--progress-bar=off", *REQUIREMENTS],
    ):
        log = OUT / f"pip{NAME}.log"
        with log.open("wb") as output:
            run = subprocess.run(
                command, env=child_environment(), stdout=output, stderr=subprocess.STDOUT
            )
        if run.returncode:
            return f"{REQUIREMENTS[0]} could not be installed, see {log.relative_to(PROJECT)}"
    write_stamp(folder, {"key": key, "jax": REQUIREMENTS[0].partition("==")[2]})
    return None
