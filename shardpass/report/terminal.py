"""A report on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shardpass.diagnostics import human_bytes
from shardpass.report.fold import FoldedRow, fold, unfolded
from shardpass.report.model import CompiledFigures, MemoryFigures, Report, Totals, ValueRow

_LONGEST_SPEC = 32


def render_terminal(
    report: Report, console: Console | None = None, *, show_all: bool = False
) -> None:
    """Print ``report``.

    Args:
      report: what to print.
      console: where; standard output by default.
      show_all: whether numbered layers get a row each, rather than one for all that are alike.
    """
    console = console or Console()
    console.print(_headline(report))
    for mesh in report.meshes:
        axes = ", ".join(f"{name}={size}" for name, size in mesh.axes) or "no axes"
        plural = "" if mesh.devices == 1 else "s"
        line = f"mesh @{mesh.name}: {axes} ({mesh.devices} device{plural})"
        if mesh.device_ids is not None:
            line += f", device ids {', '.join(map(str, mesh.device_ids))}"
        console.print(Text(line))
    for title, rows, totals in (
        ("arguments", report.arguments, report.argument_totals),
        ("results", report.results, report.result_totals),
    ):
        if rows:
            shown = unfolded(rows) if show_all else fold(rows)
            console.print(_value_table(title, shown, len(rows), totals))
    if report.compiled:
        _print_compiled(report.compiled, console)


def _headline(report: Report) -> Text:
    notation = {
        "none": "no shardings",
        "sdy": "sdy shardings",
        "mhlo": "mhlo shardings",
        "both": "sdy and mhlo shardings",
    }[report.notation]
    plural = "" if report.devices == 1 else "s"
    line = f"{report.module}: {notation}, {report.devices} device{plural}"
    return Text(line, style="bold")


def _value_table(title: str, rows: Sequence[FoldedRow], count: int, totals: Totals) -> Table:
    counted = f"{count} {title if count != 1 else title.removesuffix('s')}"
    table = _table(f"{counted}: {_share_of(totals)}")
    are_folded = any(len(row.rows) > 1 for row in rows)
    specs = [_spec(row.example) for row in rows]
    table.add_column("path", Text("total"), overflow="fold")
    if are_folded:
        table.add_column("", justify="right", no_wrap=True)
    table.add_column("type", no_wrap=True)
    # A list of device ids is as long as it likes; anything shorter is best read on one line.
    table.add_column("spec", overflow="fold", no_wrap=max(map(len, specs)) <= _LONGEST_SPEC)
    table.add_column("shard", no_wrap=True)
    table.add_column("bytes", Text(human_bytes(totals.bytes)), justify="right", no_wrap=True)
    table.add_column(
        "per device",
        Text(_at_most(totals.at_most, _bytes(totals.bytes_per_device))),
        justify="right",
        no_wrap=True,
    )
    for row, spec in zip(rows, specs, strict=True):
        one = row.example
        times = [Text(f"x{len(row.rows)}" if len(row.rows) > 1 else "")] if are_folded else []
        table.add_row(
            Text(row.path),
            *times,
            Text("x".join([*map(str, one.shape), one.dtype]) + ("*" if _shares(one) else "")),
            Text(spec),
            Text(_at_most(one.decided_by == "open", _shard(one))),
            Text(human_bytes(row.bytes)),
            Text(_at_most(one.decided_by == "open", _bytes(row.bytes_per_device))),
        )
    if any(_shares(row.example) for row in rows):
        is_result = any(row.example.alias_of is not None for row in rows)
        legend = "in the buffer of a donated argument" if is_result else "donated"
        table.caption = Text(f"* {legend}")
        table.caption_justify = "left"
    return table


def _share_of(totals: Totals) -> str:
    if totals.ratio is None:
        return f"XLA lays out {totals.unknown} of them, and --compile shows how"
    return f"each device holds {'at most ' * totals.at_most}{totals.ratio:.3f} of the bytes"


def _spec(row: ValueRow) -> str:
    if row.decided_by == "unknown":
        return "?"
    spec = row.spec if row.spec is not None else "-"
    return f"{spec} (XLA)" if row.decided_by == "xla" else spec


def _shard(row: ValueRow) -> str:
    if row.shard_shape is None:
        return "?"
    return "x".join(map(str, row.shard_shape)) if row.shape else "scalar"


def _bytes(size: int | None) -> str:
    return "?" if size is None else human_bytes(size)


def _at_most(mark: bool, text: str) -> str:
    return f"<= {text}" if mark else text


def _shares(row: ValueRow) -> bool:
    """Whether the buffer is a donated argument's."""
    return row.donated or row.alias_of is not None


def _table(title: str, *, show_header: bool = True) -> Table:
    return Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_header=show_header,
        show_footer=True,
    )


def _print_compiled(compiled: CompiledFigures, console: Console) -> None:
    collectives = compiled.collectives
    if not collectives.rows:
        console.print(Text("no collectives", style="bold"))
    else:
        table = _table("collectives, per device and run")
        more = "+" if any(row.at_least for row in collectives.rows) else ""
        table.add_column("kind", Text("total"))
        table.add_column("count", Text(f"{collectives.count}{more}"), justify="right")
        table.add_column("bytes", Text(human_bytes(collectives.bytes) + more), justify="right")
        table.add_column("in the program", justify="right")
        for row in collectives.rows:
            mark = "+" if row.at_least else ""
            table.add_row(
                row.kind,
                f"{row.count}{mark}",
                f"{human_bytes(row.bytes)}{mark}",
                str(row.instructions),
            )
        console.print(table)
    if collectives.unknown_loops:
        loops = ", ".join(collectives.unknown_loops)
        console.print(Text(f"+ counted once in loops of unknown length: {loops}"))
    if compiled.memory:
        console.print(_memory_table(compiled.memory))


def _memory_table(memory: MemoryFigures) -> Table:
    table = _table("memory per device", show_header=False)
    table.add_column("kind", Text("peak"))
    table.add_column("bytes", Text(human_bytes(memory.peak)), justify="right", no_wrap=True)
    for kind, size in (
        ("arguments", memory.argument),
        ("results", memory.output),
        ("of these in arguments' buffers", memory.alias),
        ("temporaries", memory.temp),
    ):
        table.add_row(Text(kind), Text(human_bytes(size)))
    return table
