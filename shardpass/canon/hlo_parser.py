"""The parser of XLA's sharding text: V1 lists, V2 iotas, named V3 shardings.

The grammar, as jaxlib 0.10 and 0.12 read it (``HloParserImpl::ParseSharding``), less what this
package refuses on purpose (the list is in :mod:`shardpass.canon`)::

    sharding ::= single | '{' (single (',' single)*)? '}'
    single   ::= '{' entry+ '}' | '{' named '}'
    entry    ::= 'replicated' | 'manual' | 'unknown' | 'unreduced' | 'maximal'
               | 'device=' integer
               | 'devices=' '[' integers ']' (integers | '<=' '[' integers ']' perm?)
               | 'last_tile_dim_replicate' | 'last_tile_dims=' '{' subgroup (',' subgroup)* '}'
               | ('shard_as' | 'shard_like') integer
               | metadata
    perm     ::= 'T' '(' integers ')'
    subgroup ::= 'manual' | 'unreduced' | 'replicated'

Entries may stand in any order, each at most once; a permutation stands exactly where there is more
than one reshape dimension. Named shardings are :mod:`shardpass.canon.named_parser`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shardpass.canon.convert import named_to_hlo
from shardpass.canon.hlo_sharding import HloKind, HloSharding, ShardGroup, SubgroupType
from shardpass.canon.metadata import Metadata
from shardpass.canon.metadata_parser import parse_metadata
from shardpass.canon.named_parser import NAMED_STARTS, parse_named
from shardpass.canon.scanner import Scanner
from shardpass.canon.tile_assignment import TileAssignment, first_repeated
from shardpass.diagnostics import Excerpt, ShardingError, did_you_mean

_WHOLE: Final = {
    kind.value: kind
    for kind in (HloKind.REPLICATED, HloKind.MANUAL, HloKind.UNKNOWN, HloKind.UNREDUCED)
}
_SUBGROUPS: Final = {subgroup.value: subgroup for subgroup in SubgroupType}
_ENTRIES: Final = (
    *_WHOLE,
    "maximal",
    "device=",
    "devices=",
    "last_tile_dim_replicate",
    "last_tile_dims=",
    "shard_as",
    "shard_like",
    "metadata=",
)


def parse_hlo_sharding(text: str) -> HloSharding:
    """The sharding that ``text`` says; see :meth:`HloSharding.parse`."""
    scanner = Scanner(text)
    scanner.expect("{")
    is_tuple = scanner.sees("{") or scanner.sees("}")
    sharding = _tuple(scanner) if is_tuple else _single(scanner)
    scanner.expect_end()
    return sharding


def _tuple(scanner: Scanner) -> HloSharding:
    elements: list[HloSharding] = []
    while not scanner.accept("}"):
        if elements:
            scanner.expect(",", "an element")
        scanner.expect("{")
        elements.append(_single(scanner))
    return HloSharding.tuple_of(elements)


def _single(scanner: Scanner) -> HloSharding:
    """Read what follows the opening brace, up to and with the closing one."""
    scanner.skip_space()
    start = scanner.offset
    word = scanner.word()
    scanner.offset = start
    if word in NAMED_STARTS:
        named, metadata = parse_named(scanner)
        return replace(named_to_hlo(named), metadata=metadata)
    entries = _Entries(scanner)
    while not scanner.accept("}"):
        entries.read_one()
    return entries.build(start)


@dataclass(slots=True)
class _Tiles:
    """What stood behind ``devices=``, and where."""

    tile: TileAssignment
    offset: int
    length: int


class _Entries:
    """The entries between two braces, each at most once, and the value they make together."""

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._seen: dict[str, int] = {}
        self._whole: HloKind | None = None
        self._device: int | None = None
        self._tiles: _Tiles | None = None
        self._subgroups: tuple[SubgroupType, ...] = ()
        self._group: ShardGroup | None = None
        self._metadata: tuple[Metadata, ...] = ()

    def read_one(self) -> None:
        """Read the next entry, or raise ``syntax``."""
        scanner = self._scanner
        scanner.skip_space()
        start = scanner.offset
        name = scanner.word()
        # XLA's lexer takes a name and its "=" as one token, without white space between them.
        if scanner.text.startswith("=", scanner.offset) and name:
            scanner.offset += 1
            name += "="
        readers: dict[str, Callable[[int], None]] = {
            "maximal": lambda _: None,
            "device=": self._read_device,
            "devices=": self._read_devices,
            "last_tile_dim_replicate": self._read_replicate,
            "last_tile_dims=": self._read_subgroups,
            "shard_as": self._read_group,
            "shard_like": self._read_group,
            "metadata=": self._read_metadata,
        }
        slot = {"shard_as": "shard group", "shard_like": "shard group"}.get(name, name)
        if name in _WHOLE:
            slot = "kind"
        elif name == "last_tile_dim_replicate":
            slot = "last_tile_dims="
        elif name not in readers:
            scanner.offset = start
            scanner.fail(
                "syntax",
                f'"{name}" is not an entry of a sharding' if name else 'expected an entry or "}"',
                length=max(1, len(name)),
                help=did_you_mean(name, _ENTRIES),
            )
        if slot in self._seen:
            scanner.fail(
                "syntax",
                f'"{name}" where the sharding already has its {slot.rstrip("=")}',
                offset=start,
                length=len(name),
            )
        self._seen[slot] = start
        if name in _WHOLE:
            self._whole = _WHOLE[name]
        else:
            readers[name](start)

    def build(self, start: int) -> HloSharding:
        """The sharding that all entries make; ``start`` is where the first of them stands."""
        sharding = self._value(start)
        reduction = next((m.reduction for m in self._metadata if m.is_reduction), None)
        if reduction in ("max", "min") and (
            sharding.kind is HloKind.UNREDUCED or SubgroupType.UNREDUCED in sharding.subgroup_types
        ):
            sharding = replace(sharding, reduction=reduction)
        return replace(sharding, group=self._group, metadata=self._metadata)

    def _value(self, start: int) -> HloSharding:
        if self._whole is not None:
            self._refuse("maximal", "device=", "devices=", "last_tile_dims=")
            return HloSharding(self._whole)
        if "maximal" in self._seen:
            self._refuse("devices=", "last_tile_dims=")
            if self._device is None:
                self._scanner.fail(
                    "syntax", "maximal without device=", offset=self._seen["maximal"], length=7
                )
            return HloSharding.maximal(self._device)
        self._refuse("device=")
        if self._tiles is None:
            self._scanner.fail(
                "syntax",
                "a sharding says devices=, or replicated, manual, unknown, unreduced or maximal",
                offset=start,
            )
        tiles = self._tiles
        try:
            return HloSharding.tiled(tiles.tile, self._subgroups)
        except ShardingError as error:
            raise self._placed(error, tiles.offset, tiles.length) from None

    def _refuse(self, *slots: str) -> None:
        for slot in slots:
            if slot in self._seen:
                self._scanner.fail(
                    "syntax",
                    f"{slot.rstrip('=')} does not go with what else the sharding says",
                    offset=self._seen[slot],
                    length=len(slot),
                )

    def _read_device(self, _: int) -> None:
        self._device = self._scanner.integer("a device id")

    def _read_devices(self, start: int) -> None:
        scanner = self._scanner
        scanner.expect("[", "devices=")
        dims = scanner.integers("a number of tiles")
        scanner.expect("]")
        if not scanner.accept("<="):
            self._read_list(start, dims)
            return
        scanner.expect("[", "<=")
        reshape_dims = scanner.integers("a reshape size")
        scanner.expect("]")
        perm: list[int] = []
        if len(reshape_dims) > 1:
            scanner.expect("T", "more than one reshape size")
            scanner.expect("(")
            perm = scanner.integers("a dimension")
            scanner.expect(")")
        length = scanner.offset - start
        try:
            tile = TileAssignment.iota(dims, reshape_dims, perm)
        except ShardingError as error:
            raise self._placed(error, start, length) from None
        self._tiles = _Tiles(tile, start, length)

    def _read_list(self, start: int, dims: list[int]) -> None:
        scanner = self._scanner
        scanner.skip_space()
        list_start = scanner.offset
        ids = np.array(scanner.integers('a device id or "<="'), dtype=np.int64)
        repeated = first_repeated(ids)
        if repeated is not None:
            offset, length = scanner.position_in_list(list_start, repeated)
            scanner.fail(
                "duplicate-device",
                f"device {ids[repeated]} stands twice",
                offset=offset,
                length=length,
            )
        length = scanner.offset - start
        try:
            tile = TileAssignment.listed(dims, ids)
        except ShardingError as error:
            raise self._placed(error, start, length) from None
        self._tiles = _Tiles(tile, start, length)

    def _read_replicate(self, _: int) -> None:
        self._subgroups = (SubgroupType.REPLICATED,)

    def _read_subgroups(self, _: int) -> None:
        scanner = self._scanner
        scanner.expect("{", "last_tile_dims=")
        subgroups = [self._subgroup()]
        while scanner.accept(","):
            subgroups.append(self._subgroup())
        scanner.expect("}")
        self._subgroups = tuple(subgroups)

    def _subgroup(self) -> SubgroupType:
        scanner = self._scanner
        scanner.skip_space()
        start = scanner.offset
        word = scanner.word()
        if word in _SUBGROUPS:
            return _SUBGROUPS[word]
        scanner.offset = start
        wanted = "manual, unreduced or replicated"
        if not word:
            return scanner.unexpected(wanted)
        return scanner.fail("syntax", f'"{word}" is not a subgroup: {wanted}', length=len(word))

    def _read_group(self, start: int) -> None:
        exact = self._scanner.text.startswith("shard_as", start)
        self._group = ShardGroup(self._scanner.integer("a shard group"), exact)

    def _read_metadata(self, _: int) -> None:
        self._metadata = parse_metadata(self._scanner)

    def _placed(self, error: ShardingError, offset: int, length: int) -> ShardingError:
        found = error.diagnostic
        return ShardingError(
            found.slug,
            found.message,
            help=found.help,
            notes=found.notes,
            excerpt=Excerpt.at(self._scanner.text, offset, length),
        )
