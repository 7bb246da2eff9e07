"""The shape and element type of an array that need not be in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ArrayDescription:
    """What is known of an array before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype
