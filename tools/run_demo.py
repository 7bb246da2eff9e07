"""``./tools/demo``: GPT-2's training step, from a file that nobody annotated to eight devices.

Exports the step (124 million parameters, forward, backward and AdamW), shards it
by the rules in examples/gpt2/rules.toml, reports what that means in bytes, and
runs it on eight virtual CPU devices against the unsharded program; all of it in
Shardy's notation and in GSPMD's. Every command is printed as one would type it.

Makes the environment .venv on the first run; writes to out/demo.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from process_memory import PeakMemory
from project_environment import (
    PROJECT,
    Environment,
    child_environment,
    make_environment,
    say,
    this_python,
)

NOTATIONS = ("sdy", "mhlo")
DEVICES = 8
#: What one device may hold of the arguments; a quarter and what is on every device is 0.26.
MOST_OF_ARGUMENTS = 0.35
#: What the devices may tell each other otherwise than by all-reduces, as a part of the latter.
MOST_OF_OTHER_TRAFFIC = 0.05
MOST_MEMORY = 16 * 2**30


class DemoError(Exception):
    """A step of the demo did not do what it should; the text says which and what."""


class Demo:
    """The steps, and what they need to know of each other.

    Args:
      environment: has the project installed.
      folder: where the files go.
      export_options: further options of the exporter, such as ``--layers 2``.
    """

    def __init__(
        self, environment: Environment, folder: Path, export_options: Sequence[str] = ()
    ) -> None:
        self.environment = environment
        self.folder = folder
        self.export_options = export_options
        self.peak = PeakMemory()

    def run(self) -> Path:
        """Do all of it; the path of the sharded module.

        Raises:
          DemoError: at the first step that fails, or a claim that does not hold.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        step = self.folder / "gpt2.mlir"
        say("\n== Export the training step: no mesh, no shardings, no weights")
        exporter = ["python", "examples/gpt2/export_step.py", "-o", str(step)]
        self.command(*exporter, *self.export_options)
        for notation in NOTATIONS:
            self.notation(step, notation)
        return self.sharded(NOTATIONS[0])

    def sharded(self, notation: str) -> Path:
        """Where the module in one notation goes."""
        return self.folder / f"gpt2.{notation}.mlir"

    def notation(self, step: Path, notation: str) -> None:
        """Shard the step in one notation, report it, test the claims, run it."""
        sharded = self.sharded(notation)
        rules = ["--rules", "examples/gpt2/rules.toml", "--notation", notation]
        say(f"\n== Shard it, in the notation {notation}")
        self.command("shardpass", "shard", str(step), "-o", str(sharded), *rules)
        if notation == NOTATIONS[0]:
            say("\n== What a device holds, and what the devices tell each other")
            self.command("shardpass", "report", str(sharded), "--compile")
        else:
            say("\n== The same figures for this notation, through XLA's other partitioner")
        report = self.folder / f"report.{notation}.json"
        options = ["--json", "--compile"]
        self.command("shardpass", "report", str(sharded), *options, output=report)
        figures = json.loads(report.read_text(encoding="utf-8"))
        faults = list(faults_of(figures))
        if faults:
            raise DemoError("; ".join(faults))
        say(summary_of(figures))
        say(f"\n== Run it on {DEVICES} devices, and compare with the unsharded program")
        self.command("shardpass", "run", str(sharded), "--devices", str(DEVICES), "--check")

    def command(self, program: str, *arguments: str, output: Path | None = None) -> None:
        """Print a command as one would type it in the project's folder, and run it there.

        Args:
          program: one of the environment.
          arguments: its arguments.
          output: a file for its standard output.
        """
        path = self.environment.program(program)
        words = [_short(word) for word in arguments]
        shown = shlex.join([_short(path), *words])
        say(f"$ {shown}" + (f" > {_short(str(output))}" if output else ""))
        started = time.monotonic()
        # Tables are as wide as the terminal is; a pipe is given a width at which they read well.
        columns = str(shutil.get_terminal_size((140, 40)).columns)
        environment = child_environment(COLUMNS=columns)
        with output.open("wb") if output else contextlib.nullcontext() as stdout:
            process = subprocess.Popen([path, *words], cwd=PROJECT, env=environment, stdout=stdout)
            with self.peak.of(process):
                status = process.wait()
        say(f"[{time.monotonic() - started:.0f} s]")
        if status:
            raise DemoError(f"{program} {arguments[0]} ended with exit status {status}")


def _short(word: str) -> str:
    """A path as it is named from the project's folder."""
    path = Path(word)
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else word


def collectives_of(report: dict) -> dict[str, tuple[int, int]]:
    """Kind of collective -> how many a run makes, and their bytes per device."""
    rows = report["compiled"]["collectives"]
    return {row["kind"]: (row["count"], row["bytes"]) for row in rows}


def argument_share(report: dict) -> float:
    """What one device holds of all arguments' bytes, as the compiler allots them."""
    return report["compiled"]["memory"]["argument"] / report["totals"]["arguments"]["bytes"]


def faults_of(report: dict) -> Iterator[str]:
    """The claims of the demo that a report of ``shardpass report --json --compile`` refutes."""
    collectives = collectives_of(report)
    _, reduced = collectives.pop("all-reduce", (0, 0))
    others = sum(size for _, size in collectives.values())
    if not reduced:
        yield "no all-reduce in the compiled program: it is not tensor parallel"
    elif others > MOST_OF_OTHER_TRAFFIC * reduced:
        yield f"{', '.join(collectives)} of {others / reduced:.2f} of the all-reduces' bytes"
    share = argument_share(report)
    if share > MOST_OF_ARGUMENTS:
        yield f"a device holds {share:.3f} of the arguments, more than {MOST_OF_ARGUMENTS}"
    if report["devices"] != DEVICES:
        yield f"the module is for {report['devices']} devices, not {DEVICES}"


def summary_of(report: dict) -> str:
    """The figures of a report in a line."""
    collectives = ", ".join(
        f"{count} {kind} ({size / 2**20:.1f} MiB)"
        for kind, (count, size) in collectives_of(report).items()
    )
    return (
        f"A device holds {argument_share(report):.3f} of the arguments; a run makes {collectives}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 1 where a step failed or a claim did not hold."""
    parser = argparse.ArgumentParser(
        prog="./tools/demo", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--layers", type=int, help="blocks of the model, for a quicker look (12)")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    environment = make_environment(".venv", this_python(), ["examples", "test"])
    export_options = ["--layers", str(options.layers)] if options.layers else []
    demo = Demo(environment, PROJECT / "out" / "demo", export_options)
    try:
        sharded = demo.run()
    except DemoError as failure:
        say(f"The demo FAILED: {failure}")
        return 1
    gigabytes = demo.peak.bytes / 2**30
    say(f"\nDone in {time.monotonic() - started:.0f} s; at most {gigabytes:.1f} GiB of memory.")
    if demo.peak.bytes > MOST_MEMORY:
        say(f"The demo FAILED: that is more than {MOST_MEMORY / 2**30:.0f} GiB")
        return 1
    say(f"The sharded module: {_short(str(sharded))}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
