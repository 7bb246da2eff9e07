"""From what the user asked for to one MLIR pass manager, and through it."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from jax.extend.mlir import ir, passmanager

from shardpass.diagnostics import (
    Diagnostic,
    Excerpt,
    ShardingError,
    Sink,
    did_you_mean,
)
from shardpass.mlir import Module, hearing, load, native
from shardpass.passes.base import Body, Pass
from shardpass.passes.given import fill_in
from shardpass.passes.option_text import make_pass
from shardpass.passes.pipeline_text import NestText, PassText, parse_pipeline
from shardpass.passes.registry import Registry
from shardpass.passes.shardy.entry import EntryAsMain
from shardpass.passes.units import Step, units_of

Instrument = Callable[[passmanager.PassManager], None]


_ON_FUNCTIONS: Final = f"{native.FUNCTION}("
_NO_RULE_NEEDED: Final = re.compile(r"op 'sdy\.\w+' is unknown to SDY sharding rule registry")


@dataclass(frozen=True)
class PipelineResult:
    """What came out of a pipeline: the rewritten module, and what was worth saying."""

    module: Module
    diagnostics: tuple[Diagnostic, ...]


def run_pipeline(
    module: Any,
    pipeline: str | Pass | type[Pass] | Iterable[str | Pass | type[Pass]],
    *,
    mesh: Any = None,
    rules: Any = None,
    in_place: bool = False,
    verify_each: bool = True,
    passes: Iterable[type[Pass]] = (),
    instrument: Instrument | None = None,
    needs_entry: bool = True,
) -> PipelineResult:
    """Run passes over a module.

    Args:
      module: whatever :func:`shardpass.load` takes.
      pipeline: a pipeline's text (``"sp-annotate{rules=r.toml},sp-propagate"``), a pass, or a
        sequence of both. A class stands for the pass with default options.
      mesh: the mesh for the passes that have an option ``mesh`` and were not given one, of which
        there must be some: any mesh of ours or JAX's, or a mapping from axis name to size.
      rules: the rules, in the same way, for the passes that have an option ``rules``: a
        ``PartitionRules``, a list of ``(regex, PartitionSpec)`` or the path of a TOML file.
      in_place: edit ``module`` itself instead of a clone. If the pipeline fails then, the module
        may be half changed.
      verify_each: run MLIR's verifier behind every pass.
      passes: classes that ``pipeline``'s text may name beside the built-in ones.
      instrument: is handed MLIR's pass manager before it runs, to have it print or time passes.
        What it times, MLIR prints to standard error at the end. Passes are kept apart then that
        would run as one otherwise (``sp-verify+sp-strip``), and what one of several steps does is
        called ``sp-propagate(1/3)``.
      needs_entry: refuse a module of several public functions and no ``@main`` where the pipeline
        names passes of Shardy's: some abort on it, and take the process with them.

    Returns:
      The rewritten module, and every warning and remark.

    Raises:
      ShardingError: what was wrong, with all that was reported in ``error.diagnostics``. Any other
        exception that a pass raises leaves with its own type.
    """
    loaded = load(module)
    steps = fill_in(build(pipeline, passes), {"rules": rules, "mesh": mesh})
    target = loaded if in_place else loaded.clone()
    sink = Sink()
    try:
        _run(
            target,
            steps,
            sink,
            verify_each=verify_each,
            instrument=instrument,
            needs_entry=needs_entry,
        )
    except ShardingError as error:
        raise ShardingError.of([loaded.place(d) for d in error.diagnostics]) from error
    of_gradients = [s for s in steps if isinstance(s, Pass) and s.is_for_gradients]
    if target.container is not None and of_gradients:
        change = functools.partial(_change, steps=of_gradients)
        target = replace(target, changes=(*target.changes, change))
    return PipelineResult(target, tuple(loaded.place(d) for d in sink))


def _change(program: ir.Module, steps: Sequence[Pass]) -> None:
    """Run ``steps`` over the gradient of a function that went through them already.

    What they warn of was said of the function.
    """
    _run(Module(program), steps, Sink(), verify_each=True, instrument=None, needs_entry=True)


def build(
    pipeline: str | Pass | type[Pass] | Iterable[str | Pass | type[Pass]],
    passes: Iterable[type[Pass]] = (),
) -> list[Step]:
    """The steps that ``pipeline`` asks for, names looked up and native passes nested.

    Passes that run on functions and stand side by side are nested together, so that MLIR takes
    each function through all of them.

    Raises:
      ShardingError: ``bad-pipeline``, ``unknown-pass``, ``bad-option``, each with a caret.
    """
    registry = Registry.of(passes)
    if isinstance(pipeline, (str, Pass, type)) or not isinstance(pipeline, Iterable):
        pipeline = [pipeline]
    steps: list[Step] = []
    for item in pipeline:
        if isinstance(item, Pass):
            steps.append(item)
        elif isinstance(item, type) and issubclass(item, Pass):
            steps.append(item())
        elif isinstance(item, str):
            for element in parse_pipeline(item):
                steps += _steps(element, item, registry)
        else:
            raise ShardingError(
                "abstract-type",
                f"a pipeline is made of texts and passes, not of {type(item).__name__}",
                help="hand over an instance of a subclass of shardpass.passes.Pass",
            )
    return list(_grouped(steps))


def _grouped(steps: Iterable[Step]) -> Iterator[Step]:
    for are_nested, group in itertools.groupby(steps, _is_on_functions):
        if are_nested:
            inner = (str(step)[len(_ON_FUNCTIONS) : -1] for step in group)
            yield f"{_ON_FUNCTIONS}{','.join(inner)})"
        else:
            yield from group


def _is_on_functions(step: Step) -> bool:
    return isinstance(step, str) and step.startswith(_ON_FUNCTIONS)


def _steps(element: PassText | NestText, text: str, registry: Registry) -> list[Step]:
    if isinstance(element, NestText):
        return _nest(element, text, registry)
    if found := _find(element, text, registry):
        return [make_pass(found, element, text)]
    where = native.anchor(element.name)
    if where is None:
        raise ShardingError(
            "unknown-pass",
            f'there is no pass "{element.name}"',
            excerpt=Excerpt.at(text, element.offset, len(element.name)),
            help=did_you_mean(element.name, [*registry.names(), *native.NATIVE_PASSES])
            or "shardpass opt --list-passes shows them all",
        )
    written = element.written if where == native.MODULE else f"{where}({element.written})"
    if element.options and (fault := native.fault_of(written)):
        raise ShardingError(
            "bad-option",
            f"{element.name} does not take these options: {_first_fault(fault)}",
            excerpt=Excerpt.at(text, element.offset, len(element.written)),
        )
    return [written]


def _find(element: PassText, text: str, registry: Registry) -> type[Pass] | None:
    try:
        return registry.find(element.name)
    except ShardingError as error:
        raise error.about(
            "", excerpt=Excerpt.at(text, element.offset, len(element.name))
        ) from error


def _nest(element: NestText, text: str, registry: Registry) -> list[Step]:
    if element.anchor in (native.MODULE, "module"):
        return [step for inner in element.elements for step in _steps(inner, text, registry)]
    for inner in _flatten(element):
        if _find(inner, text, registry) or native.is_pipeline(inner.name):
            raise ShardingError(
                "bad-pipeline",
                f'"{inner.name}" runs on the whole module, not under {element.anchor}',
                excerpt=Excerpt.at(text, inner.offset, len(inner.name)),
                help="write it without the nesting; shardpass nests passes itself",
            )
        if native.anchor(inner.name) is None:
            _steps(inner, text, registry)  # Raises `unknown-pass`.
    if not native.is_anchor(element.anchor):
        raise ShardingError(
            "bad-pipeline",
            f'there is no op "{element.anchor}" to run passes on',
            excerpt=Excerpt.at(text, element.offset, len(element.anchor)),
            help=did_you_mean(element.anchor, [native.MODULE, native.FUNCTION])
            or "write the passes without the nesting; shardpass nests them itself",
        )
    if not _flatten(element):
        return []
    if fault := native.fault_of(element.written):
        raise ShardingError(
            "bad-pipeline",
            f"MLIR refuses this nesting: {_first_fault(fault)}",
            excerpt=Excerpt.at(text, element.offset, len(element.written)),
            help="write the passes without the nesting; shardpass nests them itself",
        )
    return [element.written]


def _flatten(element: NestText) -> list[PassText]:
    found: list[PassText] = []
    for inner in element.elements:
        found += _flatten(inner) if isinstance(inner, NestText) else [inner]
    return found


def _run(
    module: Module,
    steps: Sequence[Step],
    sink: Sink,
    *,
    verify_each: bool,
    instrument: Instrument | None,
    needs_entry: bool,
) -> None:
    native.register()
    context = module.ir.context
    lent = EntryAsMain()
    # MLIR may run passes on several functions at once, and diagnostics of theirs that reach Python
    # from other threads end the process (jaxlib 0.12.0.1, now and then). So does printing the IR
    # from several threads, which an instrument may ask for.
    context.enable_multithreading(False)
    with context:
        manager = passmanager.PassManager(native.MODULE)
        manager.enable_verifier(verify_each)
        for unit in units_of(steps, lent, needs_entry=needs_entry, apart=instrument is not None):
            _add(manager, unit.name, unit.work, sink)
        if instrument:
            instrument(manager)
        with hearing(context, lambda said: _report(said, sink)):
            try:
                manager.run(module.root)
            except ir.MLIRError as error:
                sink.raise_errors()
                raise ShardingError(
                    "pass-failed", "a pass failed without saying why", notes=[str(error)]
                ) from error
            finally:
                lent.leave(module.root)
                del manager  # Which prints what it timed; an error's traceback would keep it.
    sink.raise_errors()


def _report(said: Diagnostic, sink: Sink) -> None:
    """Hand on what MLIR says, but for a lack of sharding rules that is none.

    Shardy misses some for its own collectives, where a module shows them already, and says so of
    the first in a process.
    """
    if not _NO_RULE_NEEDED.match(said.message):
        sink.report(said)


def _add(manager: passmanager.PassManager, name: str, stage: str | list[Body], sink: Sink) -> None:
    if isinstance(stage, str):
        try:
            manager.add(stage)
        except ValueError as error:
            raise ShardingError(
                "bad-pipeline",
                f"{name} asks for native passes that this jaxlib refuses: {_first_fault(error)}",
                excerpt=Excerpt(stage),
            ) from error
        return
    # `op_name` stays empty: with "func.func" on a module's manager MLIR aborts the process.
    manager.add(_guarded(name, stage, sink), name=name, argument=name)


def _first_fault(said: object) -> str:
    """What MLIR's pipeline parser has to say, without the frames it wraps around it."""
    text = " ".join(str(said).split()).removeprefix("<Pass-Options-Parser>: ")
    return text.split(" failed to add ")[0]


def _guarded(name: str, bodies: Sequence[Body], sink: Sink) -> Callable[[ir.Operation, Any], None]:
    def run(root: ir.Operation, external: Any) -> None:
        for body in bodies:
            try:
                body(root, sink)
            except ShardingError as error:
                sink.report_error(error)
            except Exception as error:
                error.add_note(f"raised in {name}")
                raise
            except SystemExit as error:
                # It would end the process without a word of whose doing it was.
                raise RuntimeError(f"{name} called sys.exit({error.code!r})") from error
            # An error that is only reported, by us or by MLIR, does not stop a Python pass by
            # itself.
            if sink.has_errors:
                external.signal_pass_failure()
                return

    return run
