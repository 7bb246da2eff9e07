"""Reading ``.npz`` files: never pickles, and no array before it is asked for."""

from __future__ import annotations

import os
import zipfile
import zlib
from functools import cached_property
from typing import IO, Final

import numpy as np

from shardpass.diagnostics import ShardingError
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
