"""``shardpass lit-lint``: lit tests that check less than they seem to."""

from __future__ import annotations

from pathlib import Path

import click

from shardpass.cli.guard import FAILED, console, in_this_process
from shardpass.cli.options import console_options, example


@click.command(
    short_help="Find lit tests that check less than they seem to.",
    epilog=example("shardpass lit-lint tests/lit", "shardpass lit-lint tests/lit --prove"),
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR...")
@click.option(
    "--prove", is_flag=True, help="Run each test with its passes off as well, and want it to fail."
)
@console_options
@click.pass_context
def lit_lint(context: click.Context, paths: tuple[Path, ...], prove: bool) -> None:
    """Lint the tests of a lit suite: DIR is its folder, or one below, or a test.

    FileCheck and lit pass over what they do not know in silence: a CHEKC-NEXT, a CHECK-NEXT
    without its colon, a prefix that no RUN line names. This finds them, and RUN lines whose
    outcome nothing looks at. It looks for directives where FileCheck does: in the test, in files
    beside it (%S/Inputs/x) and in the parts that split-file makes of it (%t/x).

    With --prove, if there are no such faults, the tests run as they stand and then without the
    pass that each is named after (strip.mlir: sp-strip), or else without each of its passes in
    turn. One that does not fail then checks nothing of what the pass does. The suite's lit.cfg.py
    has to call shardpass.lit.configure. Needs lit and filecheck: pip install 'shardpass[lit]'.
    """
    in_this_process(context, _lit_lint, paths, prove)


def _lit_lint(paths: tuple[Path, ...], wants_proof: bool) -> int:
    from shardpass.lit.discovery import find_tests
    from shardpass.lit.lint import lint_files
    from shardpass.lit.prove import prove

    tests = find_tests(paths)
    # Of single tests nobody knows what others read from the files that they share.
    faults = lint_files([test.path for test in tests], are_all=all(p.is_dir() for p in paths))
    proven = ""
    if wants_proof and not faults:
        with console().step("prove"):
            proof = prove(tests, opt_options())
        faults = proof.faults
        proven = f", of which {proof.proven} were run without their passes and failed"
    console().report(faults)
    click.echo(f"{_count(len(tests), 'test')}{proven}, {_count(len(faults), 'fault')}")
    return FAILED if faults else 0


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def opt_options() -> dict[str, bool]:
    """The options of ``shardpass opt``, dashes included, and whether each takes a value."""
    from shardpass.cli.opt import opt
    from shardpass.cli.opt.words import MayHaveValue

    options = {"-h": False, "--help": False}
    for parameter in opt.params:
        if isinstance(parameter, click.Option):
            # One whose value may be left out never takes the next word for it.
            takes_value = not (
                parameter.is_flag or parameter.count or isinstance(parameter, MayHaveValue)
            )
            options.update(dict.fromkeys(parameter.opts, takes_value))
    return options
