"""The parser of XLA's sharding text: V1 lists, V2 iotas, named V3 shardings.

The grammar, as jaxlib 0.10 and 0.12 read it (``HloParserImpl::ParseSharding``), less what this
package refuses on purpose (the list is in :mod:`shardpass.canon`)::

    sharding ::= single | '{' (single (',' single)*)? '}'
    single   ::= '{' entry+ '}' | '{' named '}'
    entry    ::= 'replicated' | 'manual' | 'unknown' | 'unreduced' | 'maximal'
               | 'device=' integer
               | 'devices=' '[' integers ']' (integers | '<=' order)
               | 'last_tile_dim_replicate' | 'last_tile_dims=' '{' subgroup (',' subgroup)* '}'
               | ('shard_as' | 'shard_like') integer
               | 'metadata=' ...
    order    ::= '[' integers ']' ('T' '(' integers ')')?
    subgroup ::= 'manual' | 'unreduced' | 'replicated'

Entries may stand in any order, each at most once; a permutation stands exactly where there is more
than one reshape size. Named shardings are read by :mod:`shardpass.canon.named_parser`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shardpass.canon.hlo_sharding import HloKind, HloSharding, ShardGroup, SubgroupType
from shardpass.canon.lowering import named_to_hlo
from shardpass.canon.metadata import Metadata
from shardpass.canon.metadata_parser import parse_metadata
from shardpass.canon.named_parser import NAMED_STARTS, parse_named
from shardpass.canon.scanner import Scanner
from shardpass.canon.shared_parser import read_order
from shardpass.canon.tile_assignment import TileAssignment, first_repeated
from shardpass.diagnostics import did_you_mean

# What each entry says; a sharding says each of these at most once.
_SAYS: Final = {
    "replicated": "kind",
    "manual": "kind",
    "unknown": "kind",
    "unreduced": "kind",
    "maximal": "kind",
    "device=": "device",
    "devices=": "tiles",
    "last_tile_dim_replicate": "subgroups",
    "last_tile_dims=": "subgroups",
    "shard_as": "shard group",
    "shard_like": "shard group",
    "metadata=": "metadata",
}
# Which of them go with the kind that is said; a sharding with tiles says no kind.
_GOES_WITH: Final = {
    HloKind.MAXIMAL: {"kind", "device", "shard group", "metadata"},
    HloKind.TILED: {"tiles", "subgroups", "shard group", "metadata"},
}
_WHOLE_GOES_WITH: Final = {"kind", "shard group", "metadata"}
_SUBGROUPS: Final = {subgroup.value: subgroup for subgroup in SubgroupType}


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


class _Entries:
    """The entries between two braces, and the value that they make together."""

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._said: dict[str, tuple[int, int]] = {}
        self._kind = HloKind.TILED
        self._device = 0
        self._tile: TileAssignment | None = None
        self._subgroups: tuple[SubgroupType, ...] = ()
        self._group: ShardGroup | None = None
        self._metadata: tuple[Metadata, ...] = ()

    def read_one(self) -> None:
        """Read the next entry.

        Raises:
          ShardingError: ``syntax``, ``bad-tile-assignment``, ``duplicate-device``.
        """
        scanner = self._scanner
        scanner.skip_space()
        start = scanner.offset
        name = self._name()
        says = _SAYS[name]
        if says in self._said:
            scanner.fail(
                "syntax",
                f'"{name}" where the sharding already has its {says}',
                offset=start,
                length=len(name),
            )
        match name:
            case "device=":
                self._device = scanner.integer("a device id")
            case "devices=":
                with scanner.placing(start):
                    self._tile = self._read_tile()
            case "last_tile_dim_replicate":
                self._subgroups = (SubgroupType.REPLICATED,)
            case "last_tile_dims=":
                self._subgroups = self._read_subgroups()
            case "shard_as" | "shard_like":
                self._group = ShardGroup(scanner.integer("a shard group"), name == "shard_as")
            case "metadata=":
                self._metadata = parse_metadata(scanner)
            case _:
                self._kind = HloKind(name)
        self._said[says] = start, scanner.offset - start

    def build(self, start: int) -> HloSharding:
        """The sharding that all entries make; ``start`` is where the first of them stands."""
        goes_with = _GOES_WITH.get(self._kind, _WHOLE_GOES_WITH)
        for says, (offset, length) in self._said.items():
            if says not in goes_with:
                message = f"the {says} does not go with what else the sharding says"
                self._scanner.fail("syntax", message, offset=offset, length=length)
        sharding = self._of_kind(start)
        reduction = next((m.reduction for m in self._metadata if m.is_reduction), None)
        if sharding.is_partial and reduction in ("max", "min"):
            sharding = replace(sharding, reduction=reduction)
        return replace(sharding, group=self._group, metadata=self._metadata)

    def _of_kind(self, start: int) -> HloSharding:
        if self._kind is HloKind.MAXIMAL:
            if "device" not in self._said:
                offset, length = self._said["kind"]
                message = "maximal without device="
                self._scanner.fail("syntax", message, offset=offset, length=length)
            return HloSharding.maximal(self._device)
        if self._kind is not HloKind.TILED:
            return HloSharding(self._kind)
        if self._tile is None:
            message = "a sharding says devices=, or replicated, manual, unknown, unreduced, maximal"
            self._scanner.fail("syntax", message, offset=start)
        offset, length = self._said["tiles"]
        with self._scanner.placing(offset, length):
            return HloSharding.tiled(self._tile, self._subgroups)

    def _name(self) -> str:
        """Read the name of an entry, its ``=`` included: to XLA's lexer the two are one token."""
        scanner = self._scanner
        start = scanner.offset
        name = scanner.word()
        if name and scanner.text.startswith("=", scanner.offset):
            scanner.offset += 1
            name += "="
        if name not in _SAYS:
            scanner.offset = start
            if not name:
                scanner.unexpected('an entry or "}"')
            message = f'"{name}" is not an entry of a sharding'
            scanner.fail("syntax", message, length=len(name), help=did_you_mean(name, _SAYS))
        return name

    def _read_tile(self) -> TileAssignment:
        scanner = self._scanner
        scanner.expect("[", "devices=")
        dims = scanner.integers("a number of tiles")
        scanner.expect("]")
        if scanner.accept("<="):
            return TileAssignment.iota(dims, *read_order(scanner))
        scanner.skip_space()
        list_start = scanner.offset
        ids = scanner.integer_array('a device id or "<="')
        repeated = first_repeated(ids)
        if repeated is not None:
            offset, length = scanner.position_in_list(list_start, repeated)
            message = f"device {ids[repeated]} stands twice"
            scanner.fail("duplicate-device", message, offset=offset, length=length)
        return TileAssignment.listed(dims, ids)

    def _read_subgroups(self) -> tuple[SubgroupType, ...]:
        scanner = self._scanner
        scanner.expect("{", "last_tile_dims=")
        subgroups = [self._subgroup()]
        while scanner.accept(","):
            subgroups.append(self._subgroup())
        scanner.expect("}")
        return tuple(subgroups)

    def _subgroup(self) -> SubgroupType:
        scanner = self._scanner
        scanner.skip_space()
        start = scanner.offset
        word = scanner.word()
        if word not in _SUBGROUPS:
            scanner.offset = start
            wanted = "manual, unreduced or replicated"
            if not word:
                scanner.unexpected(wanted)
            scanner.fail("syntax", f'"{word}" is not a subgroup: {wanted}', length=len(word))
        return _SUBGROUPS[word]
