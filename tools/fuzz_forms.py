"""Damaged files of every form through ``shardpass opt``: each must end in a message.

    python tools/fuzz_forms.py                           # 300 files a form, a few minutes
    python tools/fuzz_forms.py --form exported --count 5000 --seed 3

in an environment that has shardpass. A small training step is written in every form, and each file
is that with a byte changed, with some bytes put in or left out, or with its end cut off. ``opt``
must read it, or refuse it with an error: no traceback, no internal error, no end without a word,
and none that does not end. A death of the process inside MLIR or XLA is counted
apart: it is told of in a message, and is still a fault that a check in front could have found.

Everything is drawn from one seeded generator, so that a seed, a form and a number name a file. The
exit status is 1 where something else than a message came of a file.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from shardpass.cli.options import FORMS

#: Seconds: longer than any small file takes on a busy machine, twice read until that is ended.
LIMIT = 90.0
_SLUG = re.compile(r"error\[([\w-]+)\]")
_QUIET = re.compile(r"\d+|\"[^\"]*\"|'[^']*'|`[^`]*`")


@dataclass
class Findings:
    """What came of the files: how many in which way, and those with a fault of ours."""

    outcomes: Counter[str] = field(default_factory=Counter)
    deaths: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    faults: dict[str, str] = field(default_factory=dict)


# Files -------------------------------------------------------------------------------------------


def write_samples(folder: Path) -> None:
    """Write one program in every form, under the form's name; this starts MLIR."""
    import jax
    import jax.numpy as jnp
    from jax import export

    import shardpass

    def step(state: dict[str, jax.Array], x: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
        loss = jnp.tanh(x @ state["w"] + state["b"]).sum()
        return jax.tree.map(lambda p: p - 0.1 * loss, state), loss

    state = {
        "w": jax.ShapeDtypeStruct((8, 4), jnp.float32),
        "b": jax.ShapeDtypeStruct((4,), jnp.float32),
    }
    made = export.export(jax.jit(step))(state, jax.ShapeDtypeStruct((16, 8), jnp.float32))
    plain = shardpass.load(made)
    rules = shardpass.PartitionRules(
        [("^x$", shardpass.P("data")), ("w$", shardpass.P(None, "model"))],
        mesh={"data": 2, "model": 4},
    )
    annotated = shardpass.run_pipeline(plain, "sp-annotate,sp-propagate", rules=rules).module
    exported = shardpass.run_pipeline(annotated, "sp-export-mhlo").module
    for form in FORMS:
        source = exported if form.startswith("hlo") else annotated
        (folder / form).write_bytes(
            bytes(made.serialize(vjp_order=1)) if form == "exported" else source.to_bytes(form)
        )


def damaged(sample: bytes, chance: random.Random) -> bytes:
    """``sample`` with one thing broken."""
    place = chance.randrange(len(sample))
    many = chance.choice((1, 1, 2, 4, 16))
    match chance.randrange(6):
        case 0:
            return sample[:place]
        case 1:
            return sample[:place] + chance.randbytes(many) + sample[place:]
        case 2:
            return sample[:place] + sample[place + many :]
        case 3:
            return sample[:place] + chance.randbytes(many) + sample[place + many :]
        case 4:
            return _with_byte(sample, place, sample[place] ^ 1 << chance.randrange(8))
        case _:
            return _with_byte(sample, place, chance.choice((0, 1, 0x7F, 0x80, 0xFF)))


def _with_byte(sample: bytes, place: int, value: int) -> bytes:
    return sample[:place] + bytes([value]) + sample[place + 1 :]


def every_flip(sample: bytes) -> Iterator[bytes]:
    """``sample`` with each byte in turn turned around."""
    for place, value in enumerate(sample):
        yield _with_byte(sample, place, value ^ 0xFF)


# Runs --------------------------------------------------------------------------------------------


def outcome(path: Path, limit: float = LIMIT) -> tuple[int | None, str]:
    """The exit code of ``opt`` on a file, ``None`` where it did not end, and what it said."""
    with tempfile.TemporaryFile() as told:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _opt(path, told.fileno())
        code = _awaited(child, limit)
        told.seek(0)
        return code, told.read().decode(errors="replace")


def _opt(path: Path, told: int) -> NoReturn:
    """In the child: what ``shardpass opt FILE`` does."""
    os.setsid()
    code = 70  # What nothing of ours ends with.
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        os.dup2(told, 2)
        from shardpass.cli.main import main

        main(["opt", str(path)])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 71
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _awaited(child: int, limit: float) -> int | None:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def fault_in(code: int | None, told: str) -> str | None:
    """What is wrong with the end of a run; ``None`` where nothing is."""
    if code is None:
        return "it does not end"
    if "Traceback (most recent call last)" in told:
        return "a traceback"
    slugs = _SLUG.findall(told)
    if "internal" in slugs:
        return "an internal error"
    if code not in (0, 1, 3):
        return f"exit code {code}"
    if code and not slugs:
        return "an end without an error"
    if code == 3 and "process-aborted" not in slugs:
        return "a death without a name"
    return None


def run(
    form: str, files: Iterator[bytes], folder: Path, findings: Findings, limit: float = LIMIT
) -> None:
    """Send each of ``files`` through ``opt``."""
    path = folder / f"damaged.{form}"
    for number, content in enumerate(files):
        path.write_bytes(content)
        code, told = outcome(path, limit)
        fault = fault_in(code, told)
        end = fault or {0: "read", 1: "refused", 3: "died"}[code or 0]
        findings.outcomes[f"{form}: {end}"] += 1
        if fault:
            kept = path.with_name(f"{form}-{number}")
            kept.write_bytes(content)
            findings.faults[str(kept)] = f"{fault}\n{told[-2000:]}"
        elif code == 3:
            lines = [line for line in told.splitlines() if "reproducer" not in line]
            findings.deaths[_QUIET.sub("_", "\n".join(lines[:4]))].append(f"{form} {number}")


def main(words: Sequence[str] | None = None) -> int:
    """Break files, and print what came of them."""
    parser = argparse.ArgumentParser(description="Send damaged files through shardpass opt.")
    parser.add_argument("--count", type=int, default=300, help="files a form (300)")
    parser.add_argument("--seed", type=int, default=0, help="the seed (0)")
    parser.add_argument("--form", action="append", choices=FORMS, help="this form alone")
    parser.add_argument(
        "--every-byte", action="store_true", help="turn around each byte in turn, and nothing else"
    )
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.write:
        write_samples(options.write)
        return 0
    os.environ["JAX_PLATFORMS"] = "cpu"
    folder = Path(tempfile.mkdtemp(prefix="shardpass-fuzz-"))
    tempfile.tempdir = str(folder)  # Reproducers go there.
    # In a process of its own: once MLIR has started, a fork is not safe any more.
    subprocess.run([sys.executable, __file__, "--write", str(folder)], check=True)
    import shardpass.passes.pipeline  # noqa: F401 - imported once, for all the forks.

    findings = Findings()
    for form in options.form or FORMS:
        sample = (folder / form).read_bytes()
        chance = random.Random(f"{options.seed} {form}")
        files = (
            every_flip(sample)
            if options.every_byte
            else (damaged(sample, chance) for _ in range(options.count))
        )
        run(form, files, folder, findings)
    for what, number in sorted(findings.outcomes.items()):
        print(f"{what:<40} {number:>6}")
    for told, files_of in findings.deaths.items():
        print(f"\nthe process died {len(files_of)} times, first of {files_of[0]}:\n{told}")
    for path, told in findings.faults.items():
        print(f"\n{path}: {told}")
    return 1 if findings.faults else 0


if __name__ == "__main__":
    sys.exit(main())
