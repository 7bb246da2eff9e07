"""Results of a run, out of memory until they are compared."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np

from shardpass.diagnostics import ShardingError


@contextlib.contextmanager
def result_store() -> Iterator[ResultStore]:
    """A store in a temporary file without a name: gone afterwards, or when the process ends."""
    with tempfile.TemporaryFile(prefix="shardpass-") as file:
        yield ResultStore(file)


class ResultStore:
    """Arrays in one file; :func:`result_store` makes one."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places: dict[int, tuple[int, tuple[int, ...], np.dtype]] = {}

    def put(self, index: int, array: np.ndarray) -> None:
        """Keep ``array`` as number ``index``.

        Raises:
          ShardingError: ``unwritable``, if the disk is full.
        """
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        try:
            start = self._file.seek(0, 2)
            self._file.write(data.data)
            self._file.flush()
        except OSError as error:
            raise ShardingError(
                "unwritable",
                f"cannot keep {data.nbytes} bytes of results in {tempfile.gettempdir()}: "
                f"{error.strerror or error}",
                help="point TMPDIR at a disk with more room",
            ) from error
        self._places[index] = (start, array.shape, array.dtype)

    def get(self, index: int) -> np.ndarray:
        """Number ``index``, read from the file."""
        start, shape, dtype = self._places[index]
        self._file.seek(start)
        size = math.prod(shape) * dtype.itemsize
        return np.frombuffer(self._file.read(size), dtype).reshape(shape)
