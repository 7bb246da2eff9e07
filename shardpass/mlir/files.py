"""Modules as files: what is on disk, told apart by content, and how a new file gets there whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from shardpass.diagnostics import ShardingError
from shardpass.mlir import bytecode

#: Entered around each rename of a new file into its place. Whoever has to know for certain whether
#: that has happened (the command line, which a signal may end) puts something of its own here.
around_rename: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

#: How StableHLO's portable artifacts name their producer, behind the magic and the version, a byte.
_PORTABLE_PRODUCER = b"StableHLO_v"
#: A file in a folder -> what the folder is, and no module.
_FOLDERS = {
    "saved_model.pb": "a TensorFlow SavedModel, a folder of graphs, and no module",
    "_CHECKPOINT_METADATA": "an Orbax checkpoint, a folder of arrays, and no module",
}


def is_bytecode(data: bytes) -> bool:
    """Whether ``data`` is MLIR bytecode; anything else is taken for text."""
    return data.startswith(bytecode.MAGIC)


def is_portable_artifact(data: bytes) -> bool:
    """Whether ``data`` is bytecode in VHLO, the versioned form that ``jax.export`` stores."""
    return is_bytecode(data) and data[5:].startswith(_PORTABLE_PRODUCER)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file.

    Raises:
      ShardingError: ``unreadable``, with the system's reason.
    """
    if not os.fspath(path):
        raise ShardingError(
            "unreadable", "cannot read a file without a name", help="the name given is empty"
        )
    folder = _known_folder(path)
    if folder is not None:
        raise ShardingError("unreadable", f"{os.fspath(path)} is {folder}")
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # A name with a null character is a ValueError.
        name = os.fspath(path).replace("\0", "\\0")
        raise ShardingError("unreadable", f"cannot read {name}: {_reason(error)}") from error


def _known_folder(path: str | os.PathLike[str]) -> str | None:
    """What a folder is, of those that are often taken for a module."""
    for held, what in _FOLDERS.items():
        with contextlib.suppress(ValueError):  # A name with a null character.
            if os.path.exists(os.path.join(path, held)):
                return what
    return None


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse a place that nothing can be written to, before the work that would end there.

    Raises:
      ShardingError: ``unwritable``.
    """
    name = os.fspath(path)
    if not name:
        raise ShardingError(
            "unwritable", "cannot write to a file without a name", help="the name given is empty"
        )
    if "\0" in name:
        shown = name.replace("\0", "\\0")
        raise ShardingError("unwritable", f"cannot write {shown}: a null character in the name")
    folder = os.path.dirname(name) or "."
    if not os.path.isdir(folder):
        raise ShardingError(
            "unwritable",
            f"cannot write {name}: the folder {folder} does not exist",
            help=f"make it first: mkdir -p {folder}",
        )
    if os.path.isdir(name):
        raise ShardingError("unwritable", f"cannot write {name}: it is a folder")


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write ``data`` to ``path`` whole or not at all; see :func:`writing_whole`.

    Raises:
      ShardingError: ``unwritable``, with the system's reason.
    """
    with writing_whole(path) as file:
        file.write(data)


@contextlib.contextmanager
def writing_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write to, which appears at ``path`` whole when the block ends, or not at all.

    The bytes go to a new file beside the target, are flushed to the disk and renamed into place, so
    that a reader sees the old file or the new one, and a killed process or a full disk leaves the
    old one as it was. Whatever is raised inside takes the new file away. A target that is not a
    regular file (a pipe, ``/dev/stdout``) is written directly; a symbolic link is followed. The
    target's permissions are kept.

    Raises:
      ShardingError: ``unwritable``, with the system's reason; an ``OSError`` of the block counts as
        one of writing.
    """
    check_target(path)
    target = Path(os.path.realpath(path))
    try:
        # What `/dev/stdout` leads to need not have a name, if it is a pipe.
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as file:
                yield file
            return
        with _beside(target) as (descriptor, temporary):
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, _mode(target))
            with around_rename():
                os.replace(temporary, target)
    except OSError as error:
        raise ShardingError(
            "unwritable", f"cannot write {os.fspath(path)}: {_reason(error)}"
        ) from error


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[tuple[int, str]]:
    # Only the start of the name, since a name has at most 255 bytes.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
    try:
        yield descriptor, temporary
    finally:
        # Gone already where it was renamed; still there where something failed on the way.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _mode(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _reason(error: OSError | ValueError) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return (said or str(error)).lower()
