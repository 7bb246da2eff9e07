"""The device class, with declarations that a type checker can follow.

``jax.Device`` is public, but it is assigned from a binary module without stubs, and type checkers
refuse it as an annotation. At run time this is ``jax.Device`` and nothing else; what is declared is
what the package uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:

    class Device:
        """One accelerator, or one of the pieces that XLA makes of the host."""

        id: int
        platform: str
        process_index: int
        client: Any

        def addressable_memories(self) -> list[Any]:
            """The memories that this process can put data into."""
            ...

else:
    Device = jax.Device

__all__ = ["Device"]
