"""Results of a run, out of memory until they are compared."""

from __future__ import annotations

import tempfile
from types import TracebackType
from typing import Self

import numpy as np

from shardpass.diagnostics import ShardingError


class ResultStore:
    """Arrays in one temporary file without a name: gone when closed, or when the process ends."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="shardpass-")
        self._places: dict[int, tuple[int, tuple[int, ...], np.dtype]] = {}

    def put(self, index: int, array: np.ndarray) -> None:
        """Keep ``array`` as number ``index``.

        Raises:
          ShardingError: ``unwritable``, if the disk is full.
        """
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        try:
            start = self._file.seek(0, 2)
            self._file.write(memoryview(data))
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
        whole = np.empty(shape, dtype)
        self._file.readinto(memoryview(whole.reshape(-1).view(np.uint8)))
        return whole

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
