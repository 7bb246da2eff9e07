"""``shardpass opt --list-passes``."""

from __future__ import annotations

import click


def list_passes() -> int:
    """Print every pass with its options."""
    from shardpass.mlir.native import NATIVE_PASSES, anchor
    from shardpass.passes import builtin_passes

    for name, cls in builtin_passes().items():
        click.echo(f"{name}\n    {cls.summary()}")
        for key, field in cls.options().items():
            default = "" if field.default is None else f" (default {_shown(field.default)})"
            click.echo(f"      {key}: {field.metadata['help']}{default}")
    click.echo("\nNative passes:")
    for name, text in NATIVE_PASSES.items():
        if anchor(name) is not None:
            click.echo(f"  {name:48} {text}")
    return 0


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
