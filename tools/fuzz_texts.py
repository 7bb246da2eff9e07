"""Random sharding texts: from the grammar, and from known texts with something broken.

Everything is drawn from one seeded generator, so a seed names its texts.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence

_TOKEN = re.compile(r"[A-Za-z_]+=?|[0-9]+|<=|\s+|.", re.DOTALL)
_NUMBERS = ("0", "1", "2", "3", "4", "6", "8", "-1", "07", "4294967296", "9223372036854775807")
_ABSURD = ("9223372036854775808", "99999999999999999999", "1" + "0" * 5000)
_CHARACTERS = "{}[]()<>=,:;?'\"T0123456789 \n\t-+./*\\%xé"
_WORDS = (
    "replicated",
    "maximal",
    "manual",
    "unknown",
    "unreduced",
    "devices=",
    "device=",
    "last_tile_dim_replicate",
    "last_tile_dims=",
    "shard_as",
    "shard_like",
    "metadata=",
    "mesh",
    "device_ids=",
)


class Texts:
    """A source of texts.

    Args:
      seed: what names them.
      known: texts to break.
      newer: whether to write what only jaxlib 0.12 reads: kinds of reduction, ``single_device``.
    """

    def __init__(self, seed: int, known: Sequence[str], *, newer: bool) -> None:
        self._random = random.Random(seed)
        self._known = list(known)
        self._newer = newer

    def draw(self, count: int) -> list[str]:
        """``count`` different texts, about half of them broken on purpose."""
        texts: dict[str, None] = {}
        while len(texts) < count:
            text = self._written()
            if self._random.random() < 0.5:
                text = self._broken(text if self._random.random() < 0.5 else self._one_known())
            texts[text] = None
        return list(texts)

    def _one_known(self) -> str:
        return self._random.choice(self._known)

    def _written(self) -> str:
        pick = self._random.random()
        if pick < 0.1:
            inner = ", ".join(self._single() for _ in range(self._random.randint(0, 3)))
            return f"{{{inner}}}"
        return self._named() if pick < 0.4 else self._single()

    def _single(self) -> str:
        entries = [*self._random.choice((self._whole, self._list, self._iota, self._iota))()]
        if self._random.random() < 0.15:
            kind = self._random.choice(("shard_as", "shard_like"))
            entries.append(f"{kind} {self._random.randint(0, 9)}")
        if self._random.random() < 0.15:
            entries.append(self._metadata())
        if self._random.random() < 0.2:
            self._random.shuffle(entries)
        return f"{{{' '.join(entries)}}}"

    def _whole(self) -> list[str]:
        words = ["replicated", "manual", "unknown", "unreduced"]
        return [self._random.choice([*words, f"maximal device={self._random.randint(0, 99)}"])]

    def _list(self) -> list[str]:
        dims = self._sizes(self._random.randint(1, 4), 64)
        ids = list(range(math.prod(dims)))
        if self._random.random() < 0.7:
            self._random.shuffle(ids)
        return [f"devices=[{_join(dims)}]{_join(ids)}", *self._subgroups(len(dims))]

    def _iota(self) -> list[str]:
        dims = self._sizes(self._random.randint(1, 5), 10_000)
        reshape = self._factors(math.prod(dims))
        perm = list(range(len(reshape)))
        self._random.shuffle(perm)
        order = f"T({_join(perm)})" if len(reshape) > 1 else ""
        return [f"devices=[{_join(dims)}]<=[{_join(reshape)}]{order}", *self._subgroups(len(dims))]

    def _subgroups(self, rank: int) -> list[str]:
        pick = self._random.random()
        if pick < 0.4:
            return []
        if pick < 0.6:
            return ["last_tile_dim_replicate"]
        types = self._random.choices(
            ("manual", "replicated", "unreduced"), k=self._random.randint(1, min(3, rank))
        )
        return [f"last_tile_dims={{{', '.join(types)}}}"]

    def _named(self) -> str:
        if self._random.random() < 0.05:
            word = "single_device" if self._newer else "maximal_mesh"
            return f"{{{word}[device_id={self._random.randint(0, 9)}]}}"
        sizes = self._sizes(self._random.randint(0, 3), 1000)
        mesh = ",".join(f"'{name}'={size}" for name, size in zip("abc", sizes, strict=False))
        parts = [f"mesh[{mesh}]"]
        if sizes and self._random.random() < 0.25:
            parts.append(f"device_ids=({self._mesh_order(math.prod(sizes))})")
        if self._random.random() < 0.15:
            parts.append(self._random.choice(("replicated", "manual", "unreduced")))
            return f"{{{', '.join(parts)}}}"
        pieces = [
            piece
            for name, size in zip("abc", sizes, strict=False)
            for piece in self._axis_pieces(name, size)
        ]
        self._random.shuffle(pieces)
        dims = []
        for _ in range(self._random.randint(0, 3)):
            taken = [pieces.pop() for _ in range(min(len(pieces), self._random.randint(0, 2)))]
            dims.append("{" + ",".join([*taken, *["?"] * (self._random.random() < 0.3)]) + "}")
        parts.append(f"[{', '.join(dims)}]")
        for name in ("replicated", "unreduced", "manual"):
            if pieces and self._random.random() < 0.3:
                taken = sorted(pieces.pop() for _ in range(self._random.randint(1, len(pieces))))
                kind = self._random.choice(("", "max", "min", "sum")) if self._newer else ""
                parts.append(f"{name}={kind * (name == 'unreduced')}{{{','.join(taken)}}}")
        if self._random.random() < 0.1:
            parts.append(self._metadata())
        return f"{{{', '.join(parts)}}}"

    def _axis_pieces(self, name: str, size: int) -> list[str]:
        if self._random.random() < 0.6:
            return [f"'{name}'"]
        pieces, pre_size = [], 1
        for factor in self._factors(size):
            if factor > 1:
                pieces.append(f"'{name}':({pre_size}){factor}")
                pre_size *= factor
        return pieces

    def _mesh_order(self, size: int) -> str:
        if self._random.random() < 0.5:
            reshape = self._factors(size)
            perm = list(range(len(reshape)))
            self._random.shuffle(perm)
            return f"[{_join(reshape)}]" + (f"T({_join(perm)})" if len(reshape) > 1 else "")
        ids = list(range(size))
        self._random.shuffle(ids)
        return _join(ids)

    def _metadata(self) -> str:
        fields = ['op_name="f"', 'op_type="t"', "source_line=3", 'source_file="a.py"']
        if self._random.random() < 0.2:
            fields.append("profile_type={1,2}")
        chosen = self._random.sample(fields, self._random.randint(0, 3))
        entry = f"{{{' '.join(chosen)}}}"
        return (
            f"metadata={entry}" if self._random.random() < 0.7 else f"metadata={{{entry}, {entry}}}"
        )

    def _sizes(self, rank: int, most: int) -> list[int]:
        sizes: list[int] = []
        for _ in range(rank):
            room = most // math.prod(sizes)
            sizes.append(
                self._random.choice([s for s in (1, 2, 2, 3, 4, 6, 8, 12) if s <= room] or [1])
            )
        return sizes

    def _factors(self, size: int) -> list[int]:
        """``size`` as an ordered product, with a 1 in it now and then."""
        factors = []
        while size > 1:
            choices = [d for d in range(2, size + 1) if size % d == 0]
            factors.append(self._random.choice(choices))
            size //= factors[-1]
        if not factors or self._random.random() < 0.1:
            factors.insert(self._random.randint(0, len(factors)), 1)
        return factors

    def _broken(self, text: str) -> str:
        breakers: list[Callable[[list[str]], None]] = [
            self._drop,
            self._repeat,
            self._swap,
            self._renumber,
            self._insert,
            self._reword,
            self._space,
            self._cut,
        ]
        tokens = _TOKEN.findall(text)
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            if tokens:
                self._random.choice(breakers)(tokens)
        return "".join(tokens)

    def _at(self, tokens: list[str]) -> int:
        return self._random.randrange(len(tokens))

    def _drop(self, tokens: list[str]) -> None:
        del tokens[self._at(tokens)]

    def _repeat(self, tokens: list[str]) -> None:
        start = self._at(tokens)
        tokens[start:start] = tokens[start : start + self._random.randint(1, 4)]

    def _swap(self, tokens: list[str]) -> None:
        here, there = self._at(tokens), self._at(tokens)
        tokens[here], tokens[there] = tokens[there], tokens[here]

    def _renumber(self, tokens: list[str]) -> None:
        numbers = [index for index, token in enumerate(tokens) if token.isdecimal()]
        if numbers:
            absurd = self._random.random() < 0.05
            tokens[self._random.choice(numbers)] = self._random.choice(
                _ABSURD if absurd else _NUMBERS
            )

    def _insert(self, tokens: list[str]) -> None:
        tokens.insert(self._at(tokens), self._random.choice(_CHARACTERS))

    def _reword(self, tokens: list[str]) -> None:
        words = [index for index, token in enumerate(tokens) if token[0].isalpha()]
        if words:
            tokens[self._random.choice(words)] = self._random.choice(_WORDS)

    def _space(self, tokens: list[str]) -> None:
        tokens.insert(self._at(tokens), self._random.choice((" ", "\n", "\t", "/* c */", "// c\n")))

    def _cut(self, tokens: list[str]) -> None:
        del tokens[self._at(tokens) :]


def _join(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
