"""``shardpass opt``: passes over a file, for people who test passes."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from shardpass import __version__
from shardpass.cli.console import Console
from shardpass.cli.guard import FAILED, USAGE, console_of, guarded
from shardpass.cli.opt.files import Run, batch_outputs, run_batch
from shardpass.cli.opt.ir_printing import EVERY, IrPrinting
from shardpass.cli.opt.listing import list_passes, show_dialects
from shardpass.cli.opt.output import Output, Printing
from shardpass.cli.opt.parts import BORDER
from shardpass.cli.opt.words import LikeMlirOpt, MayHaveValue, files_and_passes
from shardpass.cli.opt.work import Request, Source
from shardpass.cli.options import FilePath, console_options, emit_option, example
from shardpass.cli.streams import STANDARD_INPUT, read_standard_input
from shardpass.diagnostics import ShardingError

if TYPE_CHECKING:
    from shardpass.mlir import Emit

Command = Callable[..., Any]

#: What an option says that names no file.
_NO_FILE = (None, "-")


def _flag(name: str, help: str, *more: str, **settings: Any) -> Callable[[Command], Command]:
    return click.option(name, *more, is_flag=True, help=help, **settings)


def _number(name: str, help: str) -> Callable[[Command], Command]:
    return click.option(name, type=click.IntRange(min=0), metavar="N", help=help)


def _names(name: str, help: str) -> Callable[[Command], Command]:
    return click.option(name, metavar="PASS,...", multiple=True, help=help)


_OPTIONS = (
    click.argument(
        "words", nargs=-1, type=click.UNPROCESSED, metavar="[FILE] [--PASS[=OPTIONS]]..."
    ),
    click.option("-o", "--output", help="Where the result goes; standard output if not said."),
    click.option("--pass-pipeline", metavar="TEXT", help="The passes as a pipeline's text."),
    _flag("--batch", "Take many FILEs, each by itself; --output is the folder for the results."),
    click.option(
        "--split-input-file",
        cls=MayHaveValue,
        bare=BORDER,
        metavar="[=MARKER]",
        help=f"Take the parts between lines that begin with MARKER ({BORDER}) for modules of "
        "their own.",
    ),
    click.option(
        "--output-split-marker",
        default=BORDER,
        metavar="MARKER",
        help="What stands between the modules in the output.",
    ),
    click.option(
        "--verify-diagnostics",
        cls=MayHaveValue,
        bare="all",
        type=click.Choice(["all", "only-expected"]),
        metavar="[=all|only-expected]",
        help="Compare what is reported with the expected-error comments of the file; expected-note "
        "may also name the help of a fault.",
    ),
    click.option(
        "--verify-each",
        cls=MayHaveValue,
        bare="true",
        type=bool,
        default=True,
        show_default=True,
        metavar="[=BOOL]",
        help="Run MLIR's verifier behind every pass.",
    ),
    _flag("--verify-roundtrip", "Print and parse the module first, and compare."),
    _flag("--allow-unregistered-dialect", "Take ops and attributes of dialects nobody knows."),
    _flag("--no-implicit-module", "Refuse a text whose ops do not stand in a module of their own."),
    _flag("--emit-bytecode", "The same as --emit=bytecode."),
    _number("--emit-bytecode-version", "The version of MLIR's bytecode."),
    _flag("--mlir-print-debuginfo", "Print locations."),
    _flag("--mlir-pretty-debuginfo", "Print locations for people."),
    _flag("--mlir-print-op-generic", "Print MLIR's generic form."),
    _flag("--mlir-print-local-scope", "Print without aliases."),
    _flag("--mlir-use-nameloc-as-prefix", "Name values by their locations."),
    _flag("--mlir-print-assume-verified", "Print without a run of the verifier in front."),
    _flag("--mlir-print-skip-regions", "Print what is inside of ops as {...}."),
    _number("--mlir-elide-elementsattrs-if-larger", "Leave out constants of more than N elements."),
    _number(
        "--mlir-elide-resource-strings-if-larger", "Leave out resources of more than N characters."
    ),
    _names("--mlir-print-ir-before", "Print the module before these passes."),
    _names("--mlir-print-ir-after", "Print the module behind these passes."),
    _flag("--mlir-print-ir-before-all", "Print the module before every pass."),
    _flag("--mlir-print-ir-after-all", "Print the module behind every pass."),
    _flag("--mlir-print-ir-after-change", "Print behind those passes alone that changed it."),
    _flag("--mlir-print-ir-after-failure", "Print the module behind a pass that fails."),
    _flag("--mlir-print-ir-module-scope", "Print the whole module where a pass is on functions."),
    click.option(
        "--mlir-print-ir-tree-dir",
        metavar="FOLDER",
        help="Print to files there, a folder for each op, instead of to standard error.",
    ),
    _flag("--mlir-timing", "Show how long each pass took; an empty report without any pass."),
    click.option(
        "--mlir-timing-display",
        type=click.Choice(["list", "tree"]),
        help="How times are shown; mlir-opt's list cannot be asked for from Python.",
    ),
    _flag("--mlir-pass-statistics", "Show what MLIR's passes counted."),
    _flag("--mlir-disable-threading", "Run on one thread, which is done in any case."),
    _flag("--dump-pass-pipeline", "Show the passes as MLIR runs them."),
    click.option(
        "--mlir-pass-pipeline-crash-reproducer",
        type=FilePath(),
        help="Where a module goes on which passes fail or abort, with the command that repeats it. "
        "If not said, to the temporary folder, in a file named after the failure, so that the same "
        "one makes no second file; with --verify-diagnostics then aborts and internal errors "
        "alone, with --quiet aborts alone.",
    ),
    _flag("--run-reproducer", "Run the passes that a reproducer names on the module in it."),
    _flag("--list-passes", "Show every pass with its options, and stop."),
    _flag("--show-dialects", "Show the dialects that are read, and stop."),
    emit_option,
    console_options,
    click.version_option(__version__, prog_name="shardpass"),
)


def _with_options(command: Command) -> Command:
    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


@click.command(
    cls=LikeMlirOpt,
    # click keeps the names of the help option from the first time that it is asked for them, which
    # may be without the group that this command is in.
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
    short_help="Run passes over a module, as compiler tests do.",
    epilog=example(
        "shardpass opt step.mlir --sp-strip --sp-annotate='rules=r.toml mesh=data=2,model=4'",
        "shardpass opt --pass-pipeline='sp-propagate,sp-export-mhlo' < step.mlir",
        "shardpass opt errors.mlir --sp-verify --split-input-file --verify-diagnostics",
        "shardpass opt --batch *.mlir --sp-strip -o stripped",
    ),
)
@_with_options
@click.pass_context
def opt(context: click.Context, words: tuple[str, ...], **options: Any) -> None:
    """Run passes over FILE (standard input if not named) and print the module.

    A file named by --output is written if nothing fails.

    Passes are flags and run in the order in which they stand, with options behind an equals sign
    (--sp-propagate="conservative strategy=basic"), or a pipeline's text. Native passes of Shardy,
    StableHLO and MLIR are named in the same way. Without any pass the module is parsed, verified
    and printed.
    """
    if options["list_passes"]:
        guarded(context, list_passes)
    if options["show_dialects"]:
        guarded(context, show_dialects)
    if options["mlir_timing_display"] == "list":
        raise click.UsageError(
            "--mlir-timing-display=list of mlir-opt cannot be asked for from Python: times come as "
            "a tree"
        )
    files, passes = files_and_passes(words)
    if not options["batch"] and len(files) > 1:
        raise click.UsageError(
            f"one file at most, not {len(files)}: {shlex.join(files)}; --batch takes many"
        )
    if options["run_reproducer"] and (passes or options["pass_pipeline"] is not None):
        raise click.UsageError("--run-reproducer takes the passes from the file: name no others")
    if options["pass_pipeline"] is not None:
        if passes:
            raise click.UsageError("passes come as flags or as --pass-pipeline, not both")
        passes = [options["pass_pipeline"]]
    request = request_of(context, passes, options)
    console = console_of(context)
    reproducer = options["mlir_pass_pipeline_crash_reproducer"]
    try:
        _check_reproducer(reproducer, {"input": files, "output": [request.output.path]})
        if options["batch"]:
            code = _batch(console, files, request, options["output"], reproducer)
        else:
            code = _single(console, files[0] if files else "-", request, reproducer)
    except ShardingError as error:
        console.report(error.diagnostics)
        code = USAGE if error.slug == "usage" else FAILED
    context.exit(code)


def _check_reproducer(reproducer: str | None, others: Mapping[str, Sequence[str | None]]) -> None:
    """Refuse to replace a file that the command reads or writes by what failed."""
    if reproducer is None or (os.path.exists(reproducer) and not os.path.isfile(reproducer)):
        return  # A device loses nothing.
    for what, paths in others.items():
        if os.path.realpath(reproducer) in [
            os.path.realpath(p) for p in paths if p not in _NO_FILE
        ]:
            raise ShardingError(
                "usage",
                f"--mlir-pass-pipeline-crash-reproducer names the {what}, {reproducer}",
                help="name a file of its own: what failed would be written over it",
            )


def _single(console: Console, file: str, request: Request, reproducer: str | None) -> int:
    source = Source(STANDARD_INPUT, read_standard_input()) if file == "-" else Source.at(file)
    return Run(console, source, request, reproducer).go().code


def _batch(
    console: Console, names: Sequence[str], request: Request, folder: str | None, reproducer: object
) -> int:
    if not names or "-" in names:
        raise ShardingError("usage", "--batch wants the names of files")
    if folder is None and request.verify_diagnostics is None:
        raise ShardingError(
            "usage", "--batch wants a folder for the results", help="name it by --output"
        )
    if reproducer is not None:
        raise ShardingError(
            "usage", "--mlir-pass-pipeline-crash-reproducer names one file, and --batch runs many"
        )
    outputs: Sequence[str | None] = (
        [None] * len(names) if folder is None else batch_outputs(names, folder)
    )
    return run_batch(
        [
            Run(console, Source.at(name), replace(request, output=request.output.to(output)))
            for name, output in zip(names, outputs, strict=True)
        ]
    )


def request_of(context: click.Context, passes: Sequence[str], options: dict[str, Any]) -> Request:
    """What a call asks for by ``passes``, texts of a pipeline, and by its other options."""
    before, after = (_split(options[f"mlir_print_ir_{when}"]) for when in ("before", "after"))
    elements_limit = options["mlir_elide_elementsattrs_if_larger"]
    resource_limit = options["mlir_elide_resource_strings_if_larger"]
    only_changes = options["mlir_print_ir_after_change"]
    if options["mlir_print_ir_before_all"]:
        before = frozenset({EVERY})
    if options["mlir_print_ir_after_all"] or (only_changes and not after):
        after = frozenset({EVERY})
    tree = options["mlir_print_ir_tree_dir"]
    path = "-" if options["output"] is None else options["output"]
    emit: Emit | None = options["emit"] or ("bytecode" if options["emit_bytecode"] else None)
    return Request(
        pipeline=tuple(passes),
        split=options["split_input_file"],
        verify_diagnostics=options["verify_diagnostics"],
        verify_each=options["verify_each"],
        verify_roundtrip=options["verify_roundtrip"],
        allow_unregistered=options["allow_unregistered_dialect"],
        implicit_module=not options["no_implicit_module"],
        timing=options["mlir_timing"],
        statistics=options["mlir_pass_statistics"],
        show_pipeline=options["dump_pass_pipeline"],
        ir_printing=IrPrinting(
            before=before,
            after=after,
            only_changes=only_changes,
            only_failures=options["mlir_print_ir_after_failure"],
            module_scope=options["mlir_print_ir_module_scope"],
            tree=tree and os.path.abspath(tree),
            debug_info=options["mlir_print_debuginfo"],
            generic=options["mlir_print_op_generic"],
            elements_limit=elements_limit,
            resource_limit=resource_limit,
        ),
        output=Output(
            path=path,
            emit=emit,
            version=options["emit_bytecode_version"],
            border=options["output_split_marker"],
            printing=Printing(
                debug_info=options["mlir_print_debuginfo"],
                pretty_debug_info=options["mlir_pretty_debuginfo"],
                generic=options["mlir_print_op_generic"],
                local_scope=options["mlir_print_local_scope"],
                names_from_locations=options["mlir_use_nameloc_as_prefix"],
                assume_verified=options["mlir_print_assume_verified"],
                skip_regions=options["mlir_print_skip_regions"],
                elements_limit=elements_limit,
                resource_limit=resource_limit,
            ),
        ),
        from_reproducer=options["run_reproducer"],
        options=tuple(
            flag.lstrip("-") for parameter in context.command.params for flag in parameter.opts
        ),
    )


def _split(values: Sequence[str]) -> frozenset[str]:
    return frozenset(name.strip() for value in values for name in value.split(",") if name.strip())
