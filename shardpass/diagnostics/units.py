"""Figures as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def human_bytes(size: float) -> str:
    """``1536`` -> ``1.5 KiB``; whole bytes below 1 KiB."""
    if size < 1024:
        return f"{size:.0f} B"
    unit = 0
    # 1023.96 KiB would print as 1024.0 KiB.
    while size >= 1023.95 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.1f} {_UNITS[unit]}"
