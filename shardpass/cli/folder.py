"""The folder that a command was called in, to which the paths on its command line are relative."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def same_folder() -> Iterator[None]:
    """Come back to the folder where the block began: a pass of somebody else may leave it.

    It is the folder itself that counts, whatever its name is by then.
    """
    try:
        folder = os.open(".", os.O_RDONLY)
    except OSError:  # Removed, or closed to this user: no relative path leads anywhere from there.
        yield
        return
    try:
        yield
    finally:
        os.fchdir(folder)
        os.close(folder)
