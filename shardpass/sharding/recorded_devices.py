"""Which devices something was on, as far as another process can know: platform and id, in order.

Ids are kept as runs, so that the record of a mesh in order is as short as its text,
``cpu:0..4095``, however many devices it has. Runs of any step are found (``0..12 by 4, 1..13 by
4``), also downwards (``7..0``).
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from shardpass.canon.mesh import MOST_LISTED
from shardpass.compat import xla_client
from shardpass.compat.devices import Device
from shardpass.diagnostics import ShardingError
from shardpass.sharding.saved import Saved

# No id of a device has more digits; Python refuses to read numbers of thousands of them.
_RUN: Final = re.compile(r"(-?\d{1,18})(?:\.\.(-?\d{1,18})(?: by ([1-9]\d{0,17}))?)?")
_SHORTEST_RUN: Final = 3


@dataclass(frozen=True, slots=True)
class RecordedDevices:
    """Devices by platform and id, in an order that means something; each at most once.

    Attributes:
      groups: stretches of one platform: its name, and the ids as runs, the longest that are found
        from the front, so that equal orders are equal values. ``str()`` is ``cpu:0..7``.
    """

    groups: tuple[tuple[str, tuple[range, ...]], ...] = ()
    # Asked for by every look-up of a mesh that is loaded again.
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.groups))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordedDevices, (self.groups,)  # Another process hashes text in another way.

    @classmethod
    def of(cls, devices: Iterable[Device]) -> RecordedDevices:
        """The record of these devices, in their order."""
        return _record_of(tuple(devices))

    @classmethod
    def _of_pairs(cls, pairs: Iterable[tuple[str, int]]) -> RecordedDevices:
        return cls(
            tuple(
                (platform, tuple(runs_of([number for _, number in group])))
                for platform, group in itertools.groupby(pairs, key=lambda pair: pair[0])
            )
        )

    def __len__(self) -> int:
        return sum(len(run) for _, runs in self.groups for run in runs)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """``(platform, id)``, one by one."""
        for platform, runs in self.groups:
            for run in runs:
                for number in run:
                    yield platform, number

    def __str__(self) -> str:
        return ", ".join(f"{platform}:{runs_text(runs)}" for platform, runs in self.groups)

    def describe(self) -> str:
        """The text, or as much of it as a message can hold."""
        text = str(self)
        return text if len(text) <= 80 else f"{text[:80]}... ({len(self)} devices)"

    # Finding them ---------------------------------------------------------------------------------

    def here(self) -> tuple[Device, ...] | None:
        """The devices, if JAX is running in this process and has them all; starts nothing."""
        clients = clients_here()
        return None if clients is None else self.among(clients)

    def among(self, clients: tuple[Any, ...]) -> tuple[Device, ...] | None:
        """The devices, if these clients have them all."""
        return _found(self, clients)

    def find(self, owner: str) -> tuple[Device, ...]:
        """The devices; starts JAX's backends if none is running yet.

        Args:
          owner: what was on them, for the message: ``the mesh x=2, y=4``.

        Raises:
          ShardingError: ``missing-devices``, with those that are not here.
        """
        clients = running_clients()
        found = _found(self, clients)
        if found is not None:
            return found
        there = _devices_of(clients)
        missing = RecordedDevices._of_pairs(pair for pair in self if pair not in there)
        raise ShardingError(
            "missing-devices",
            f"{owner} was saved on {self.describe()}, and of those {len(missing)} are not here: "
            f"{missing.describe()}",
            help=f"bind it to others: there are {RecordedDevices._of_pairs(there).describe()}",
        )

    # As it is saved -------------------------------------------------------------------------------

    def state(self) -> list[dict[str, str]]:
        """JSON values: ``[{"platform": "cpu", "ids": "0..7"}]``, one for each stretch."""
        return [{"platform": platform, "ids": runs_text(runs)} for platform, runs in self.groups]

    @classmethod
    def read(cls, saved: Saved, count: int | None = None) -> RecordedDevices:
        """The inverse of :meth:`state`.

        Args:
          saved: the list.
          count: how many devices there have to be; ``None`` where any number will do.

        Raises:
          ShardingError: ``bad-state``, with the place.
        """
        texts: list[tuple[str, Saved]] = []
        for item in saved.items():
            fields = item.fields(("platform", "ids"))
            texts.append((fields["platform"].text(), fields["ids"]))
        key = tuple((platform, ids.text()) for platform, ids in texts)
        record = _known_texts.get(key)
        if record is None:
            record = cls._parsed(saved, texts, count)
            if len(_known_texts) >= _MOST_KNOWN:
                _known_texts.clear()
            _known_texts[key] = record
        if count is not None and len(record) != count:
            raise saved.error(f"{len(record)} devices where {count} are needed")
        return record

    @classmethod
    def _parsed(
        cls, saved: Saved, texts: list[tuple[str, Saved]], count: int | None
    ) -> RecordedDevices:
        groups = [(platform, read_runs(ids)) for platform, ids in texts]
        # Counted before it is written out: a damaged end of a run may be anything.
        size = sum(_count(runs) for _, runs in groups)
        if count is not None and size != count:
            raise saved.error(f"{size} devices where {count} are needed")
        _refuse_too_many(saved, size)
        if len(groups) == 1 and len(groups[0][1]) == 1 and size >= _SHORTEST_RUN:
            return cls(((groups[0][0], tuple(groups[0][1])),))  # as it is, however long
        pairs = [(platform, number) for platform, runs in groups for run in runs for number in run]
        seen: set[tuple[str, int]] = set()
        for platform, number in pairs:
            if (platform, number) in seen:
                raise saved.error(f"device {platform}:{number} stands twice")
            seen.add((platform, number))
        return cls._of_pairs(pairs)


#: What texts said that were read before: all shardings on one mesh are saved with the same.
_known_texts: dict[tuple[tuple[str, str], ...], RecordedDevices] = {}
_MOST_KNOWN: Final = 64


def ids_text(ids: Sequence[int]) -> str:
    """Whole numbers in the text of runs: ``7..0``, or ``3, 0..2``."""
    return runs_text(runs_of(ids))


def read_ids(saved: Saved, count: int) -> tuple[int, ...]:
    """The inverse of :func:`ids_text`, for so many numbers.

    Raises:
      ShardingError: ``bad-state``, with the place.
    """
    runs = read_runs(saved)
    if _count(runs) != count:
        raise saved.error(f"{_count(runs)} ids where {count} are needed")
    _refuse_too_many(saved, count)
    return tuple(itertools.chain.from_iterable(runs))


def runs_of(ids: Sequence[int]) -> list[range]:
    """The ids as arithmetic progressions, each as long as it can be, from the front."""
    runs: list[range] = []
    start = 0
    while start < len(ids):
        end = start + 1
        step = ids[end] - ids[start] if end < len(ids) else 0
        while step and end < len(ids) and ids[end] - ids[end - 1] == step:
            end += 1
        if end - start < _SHORTEST_RUN:
            end, step = start + 1, 1
        first, last = ids[start], ids[end - 1]
        runs.append(range(first, last + (1 if step > 0 else -1), step))
        start = end
    return runs


def runs_text(runs: Iterable[range]) -> str:
    """``0..7``, ``7..0``, ``0..12 by 4``, ``3``; several with commas."""
    return ", ".join(map(_run_text, runs))


def _run_text(run: range) -> str:
    if len(run) == 1:
        return str(run[0])
    by = "" if abs(run.step) == 1 else f" by {abs(run.step)}"
    return f"{run[0]}..{run[-1]}{by}"


def read_runs(saved: Saved) -> list[range]:
    """The inverse of :func:`runs_text`; nothing is written out.

    Raises:
      ShardingError: ``bad-state``, with the place.
    """
    runs: list[range] = []
    for piece in saved.text().split(", "):
        match = _RUN.fullmatch(piece)
        if match is None:
            raise saved.error(
                f"ids are written as '0..7', '0..12 by 4' or '3, 5', not {piece[:40]!r}"
            )
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        step = int(match[3] or 1)
        if (last - first) % step:
            raise saved.error(f"the run {piece!r} does not end on {last}: the step is {step}")
        runs.append(
            range(first, last + 1, step) if last >= first else range(first, last - 1, -step)
        )
    return runs


def _count(runs: Iterable[range]) -> int:
    # Not len(), which stops at what memory could hold.
    return sum((run[-1] - run[0]) // run.step + 1 for run in runs)


def _refuse_too_many(saved: Saved, count: int) -> None:
    if count > MOST_LISTED:
        raise saved.error(f"a list of {count} is beyond the {MOST_LISTED} that are written out")


def clients_here() -> tuple[Any, ...] | None:
    """XLA's clients, if JAX is running in this process; starts nothing."""
    return running_clients() if xla_client.backends_are_initialized() else None


def running_clients() -> tuple[Any, ...]:
    """XLA's clients, one for each platform; starts them if none is running."""
    from jax.extend import backend  # Loads Pallas, which takes long.

    return tuple(backend.backends().values())


@functools.lru_cache(maxsize=1)
def _devices_of(clients: tuple[Any, ...]) -> dict[tuple[str, int], Device]:
    return {
        (device.platform, device.id): device for client in clients for device in client.devices()
    }


@functools.lru_cache(maxsize=16)
def _record_of(devices: tuple[Device, ...]) -> RecordedDevices:
    return RecordedDevices._of_pairs((device.platform, device.id) for device in devices)


@functools.lru_cache(maxsize=64)
def _found(record: RecordedDevices, clients: tuple[Any, ...]) -> tuple[Device, ...] | None:
    there = _devices_of(clients)
    found = tuple(there[pair] for pair in record if pair in there)
    return found if len(found) == len(record) else None
