"""What ``shardpass opt`` knows: ``--list-passes`` and ``--show-dialects``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from shardpass.passes import Pass


def list_passes() -> int:
    """Print every pass with its options; a broken one of somebody else's with what is wrong."""
    from shardpass.diagnostics import ShardingError
    from shardpass.mlir.native import NATIVE_PASSES, anchor
    from shardpass.passes import builtin_passes
    from shardpass.passes.plugins import owner, plugins
    from shardpass.passes.registry import Registry

    for cls in builtin_passes().values():
        _list_pass(cls)
    brought: dict[str, list[str]] = {}
    for name, points in sorted(plugins().items()):
        for whose in dict.fromkeys(map(owner, points)):
            brought.setdefault(whose, []).append(name)
    for whose, names in sorted(brought.items()):
        click.echo(f"\nOf {whose}:")
        for name in names:
            try:
                found = Registry().find(name)
            except ShardingError as error:
                click.echo(f"{name}\n    {error.diagnostic.message}")
                continue
            assert found is not None
            _list_pass(found)
    click.echo("\nNative passes:")
    for name, text in NATIVE_PASSES.items():
        if anchor(name) is not None:
            click.echo(f"  {name:48} {text}")
    return 0


def show_dialects() -> int:
    """Print the names of the dialects that are read, as mlir-opt does."""
    from shardpass.mlir.context import dialects_of, load_quantized_types, make_context

    context = make_context()
    load_quantized_types(context)
    click.echo(f"Available Dialects: {','.join(dialects_of(context))}")
    return 0


def _list_pass(cls: type[Pass]) -> None:
    click.echo(f"{cls.name}\n    {cls.summary()}")
    for key, field in cls.options().items():
        default = "" if field.default is None else f" (default {_shown(field.default)})"
        click.echo(f"      {key}: {field.metadata.get('help', '')}{default}")


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
