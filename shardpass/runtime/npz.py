"""``.npz`` files: read without pickles, and written whole; one array at a time."""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections.abc import Iterator
from functools import cached_property
from typing import IO, Final

import numpy as np

from shardpass.diagnostics import ShardingError
from shardpass.mlir.files import check_target, writing_whole
from shardpass.runtime.described import ArrayDescription

_SUFFIX: Final = ".npy"
#: What a damaged, encrypted or foreign archive makes `zipfile` and numpy raise.
_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError)


class NpzFile:
    """An ``.npz`` as ``numpy.savez`` writes it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    @cached_property
    def members(self) -> dict[str, ArrayDescription]:
        """Name -> shape and element type, from the headers alone.

        Raises:
          ShardingError: ``unreadable``; ``bad-inputs`` for a pickled array.
        """
        try:
            with zipfile.ZipFile(self.path) as archive:
                found: dict[str, ArrayDescription] = {}
                for member in archive.namelist():
                    if member.endswith(_SUFFIX):
                        with archive.open(member) as stream:
                            name = member.removesuffix(_SUFFIX)
                            found[name] = self._described(name, stream)
        except OSError as error:
            raise ShardingError(
                "unreadable", f"cannot open {self.path}: {error.strerror or error}"
            ) from error
        except _DAMAGE as error:
            if isinstance(error, ShardingError):
                raise
            raise ShardingError(
                "unreadable",
                f"{self.path} is not an .npz file: {error}",
                help="write it with numpy.savez",
            ) from error
        return found

    def read(self, name: str) -> np.ndarray:
        """One array.

        Raises:
          ShardingError: ``unreadable``, if the file is damaged behind its headers.
        """
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(name + _SUFFIX) as stream:
                return np.lib.format.read_array(stream, allow_pickle=False)
        except (OSError, *_DAMAGE) as error:
            raise ShardingError(
                "unreadable", f'cannot read "{name}" in {self.path}: {error}'
            ) from error

    def _described(self, name: str, stream: IO[bytes]) -> ArrayDescription:
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(stream)
        if dtype.hasobject:
            raise ShardingError(
                "bad-inputs",
                f'"{name}" in {self.path} holds pickled Python objects, which are never loaded',
                help="save plain arrays of numbers",
            )
        return ArrayDescription(shape, dtype)


class NpzWriter:
    """Writes arrays to an ``.npz`` one by one, whole or not at all; or, given ``None``, to nowhere.

    The types that numpy lacks (bfloat16, float8, int4 and their like) have no name in such a file:
    their bytes are stored as numpy's ``V2`` or ``V1``. ``array.view(ml_dtypes.bfloat16)`` gives
    their values back, and an ``.npz`` of inputs may hold them as they are.

    Nothing is opened before the first array, so that a run that fails writes nothing, not even to a
    pipe, and one that is killed leaves nothing behind.

    Raises:
      ShardingError: ``unwritable``.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = path
        self._stack = contextlib.ExitStack()
        self._archive: zipfile.ZipFile | None = None

    def __enter__(self) -> NpzWriter:
        if self._path is not None:
            check_target(self._path)
        return self

    def write(self, name: str, array: np.ndarray) -> None:
        """Add ``array`` under ``name``."""
        if self._path is None:
            return
        if self._archive is None:
            self._archive = self._stack.enter_context(_archive(self._path))
        if array.dtype.isbuiltin == 2:  # Registered with numpy by somebody else.
            array = array.view(f"V{array.dtype.itemsize}")
        with self._archive.open(f"{name}{_SUFFIX}", "w", force_zip64=True) as stream:
            np.lib.format.write_array(stream, array, allow_pickle=False)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and self._path is not None and self._archive is None:
            self._stack.enter_context(_archive(self._path))
        self._stack.__exit__(kind, *rest)  # pyright: ignore[reportArgumentType]


@contextlib.contextmanager
def _archive(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    with writing_whole(path) as file:
        archive = zipfile.ZipFile(file, "w", allowZip64=True)
        try:
            yield archive
            archive.close()
        except BaseException:
            # The file first: an archive that is closed on it would end as if it were whole.
            for opened in (file, archive):
                with contextlib.suppress(OSError, ValueError):
                    opened.close()
            raise
