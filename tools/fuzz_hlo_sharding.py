"""Compare shardpass's parser of HLO shardings with XLA's own, on random texts.

    python tools/fuzz_hlo_sharding.py [--count 10000] [--seed 0]

in an environment that has shardpass.

Prints how many texts both accept, both refuse, and XLA aborts on; then each kind of disagreement,
with its count, reason and an example. The exit status is 1 for a crash of ours (anything but a
ShardingError), or a disagreement that is none of :data:`KINDS`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fuzz_texts import Texts
from xla_oracle import Answer, ask

from shardpass.canon import HloSharding
from shardpass.diagnostics import ShardingError

_CASES = Path(__file__).parent.parent / "tests/cases/hlo_sharding_text.jsonl"


@dataclass(frozen=True)
class Kind:
    """Texts that XLA reads and ours refuses on purpose."""

    name: str
    reason: str
    example: str
    slug: str
    says: str


KINDS = (
    Kind(
        "not one to one",
        "each tile has one device: no repeated id, a true permutation, sizes that multiply out; "
        "XLA finds out later, if it validates, and 0.10 makes up ids",
        "{devices=[2,2]0,1,1,3}",
        "duplicate-device|bad-tile-assignment",
        r"stands twice|is not a permutation|tiles?, .* (devices|ids)$",
    ),
    Kind(
        "not a count",
        "a size below one counts nothing, a negative id does not exist, and beyond 64 bits XLA "
        "wraps around to a number that nobody wrote",
        "{maximal device=-1}",
        "syntax|bad-tile-assignment|bad-mesh|bad-sub-axis",
        r"must (all )?be at least|beyond 64 bits|more than 2\*\*63",
    ),
    Kind(
        "said twice",
        "of two entries that exclude each other XLA drops one in silence: one is a mistake",
        "{replicated manual}",
        "syntax",
        "already has its|does not go with|stands twice",
    ),
    Kind(
        "one device",
        "an array of one tile says neither replicated nor on which device",
        "{devices=[1,1]<=[1]}",
        "bad-tile-assignment",
        "of one device says nothing",
    ),
    Kind(
        "comment",
        "no printer writes one into an attribute, and none would keep it",
        "{replicated /* why */}",
        "syntax",
        "a comment inside",
    ),
    Kind(
        "empty list",
        "what lists nothing is left out",
        "{devices=[2,2]<=[4] last_tile_dims={}}",
        "syntax",
        r'expected (manual, unreduced or replicated|an axis name in quotes), found "}"',
    ),
    Kind(
        "comma behind the mesh",
        "one, as everywhere else in the named form; XLA takes none, and 0.10 takes two",
        "{mesh['a'=2] [{'a'}]}",
        "syntax",
        'expected "," after the mesh|expected "\\[", replicated, manual or unreduced, found ","',
    ),
    Kind(
        "unprintable name",
        "XLA escapes nothing in axis names: a text with a quote in one cannot be read back",
        "{mesh['a\\'b'=2], [{}]}",
        "syntax",
        "a quote or an escape cannot be printed",
    ),
    Kind(
        "not a subgroup",
        "a subgroup is manual, unreduced or replicated; XLA does nothing with the others",
        "{devices=[2,2]<=[4] last_tile_dims={maximal}}",
        "syntax",
        "is not a subgroup",
    ),
)
# Both read the text, but XLA's canonical text, read again, gives yet another; ours is that one.
UNSETTLED = "unsettled text"


@dataclass
class Findings:
    """What a run found: counts by outcome, and the texts worth looking at."""

    outcomes: Counter[str] = field(default_factory=Counter)
    named: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unnamed: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether every text was agreed on, aborted XLA, or is of a named kind."""
        return not self.unnamed and not self.crashes


def parse_ours(text: str) -> HloSharding | ShardingError:
    """The sharding, or the refusal."""
    try:
        return HloSharding.parse(text)
    except ShardingError as error:
        return error


def kind_of(error: ShardingError) -> Kind | None:
    """The kind of a refusal of ours, if it is one that XLA does not share."""
    for kind in KINDS:
        if error.slug in kind.slug.split("|") and re.search(kind.says, error.diagnostic.message):
            return kind
    return None


def compare(texts: Sequence[str], answers: Sequence[Answer]) -> Findings:
    """What ours and XLA's make of the same texts."""
    findings = Findings()
    for text, xla in zip(texts, answers, strict=True):
        try:
            ours = parse_ours(text)
        except Exception as crash:  # any other exception is the finding
            findings.crashes.append(f"{text!r}: {type(crash).__name__}: {crash}")
            continue
        accepted = isinstance(ours, HloSharding)
        if xla.outcome == "aborted":
            findings.outcomes["XLA aborts, ours " + ("accepts" if accepted else "refuses")] += 1
            findings.aborts.append(text)
        elif xla.outcome == "refused":
            if accepted:
                findings.unnamed.append(f"{text!r}: only ours reads it, as {ours}; XLA: {xla.text}")
            findings.outcomes["both refuse"] += not accepted
        elif accepted:
            same = _in_new_words(str(ours)) == _in_new_words(xla.text)
            if not same and str(parse_ours(xla.text)) == str(ours):
                findings.named[UNSETTLED].append(text)
            elif not same:
                findings.unnamed.append(f"{text!r}: XLA prints {xla.text}, ours {ours}")
            findings.outcomes["both accept, same canonical text"] += same
        else:
            kind = kind_of(ours)
            if kind:
                findings.named[kind.name].append(text)
            else:
                findings.unnamed.append(f"{text!r}: only XLA reads it, as {xla.text}; ours: {ours}")
    return findings


def known_texts() -> list[str]:
    """The texts of the recorded cases."""
    lines = _CASES.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def run(count: int, seed: int) -> Findings:
    """Draw, ask and compare."""
    newer = ask(["{single_device[device_id=0]}"])[0].outcome == "accepted"
    known = [text for text in known_texts() if newer or not _is_newer(text)]
    texts = Texts(seed, known, newer=newer).draw(count)
    return compare(texts, ask(texts))


def report(findings: Findings, say: Callable[[str], None]) -> None:
    """Print the counts, the kinds, and what is wrong."""
    for outcome, count in findings.outcomes.most_common():
        say(f"{count:7}  {outcome}")
    reasons = {kind.name: f"only XLA accepts: {kind.name}: {kind.reason}" for kind in KINDS}
    reasons[UNSETTLED] = f"{UNSETTLED}: XLA's canonical text, read again, gives another: ours"
    for name, reason in reasons.items():
        texts = findings.named[name]
        say(f"{len(texts):7}  {reason}")
        if texts:
            say(f"{'':9}{min(texts, key=len)!r}")
    for title, wrong in (("unnamed", findings.unnamed), ("crash of ours", findings.crashes)):
        say(f"{len(wrong):7}  {title}")
        for line in wrong[:20]:
            say(f"{'':9}{line[:400]}")


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="how many texts")
    parser.add_argument("--seed", type=int, default=0, help="which texts")
    options = parser.parse_args(arguments)
    findings = run(options.count, options.seed)
    report(findings, print)
    return 0 if findings.is_good else 1


def _in_new_words(text: str) -> str:
    # Between 0.10 and 0.12 a word was renamed, and unreduced axes that are the whole mesh are now
    # listed where others, of size 1, are left. Ours prints the word that was read, and the list.
    text = text.replace("maximal_mesh", "single_device")
    return re.sub(r", unreduced\{[^}]*\}", ", unreduced", text)


def _is_newer(text: str) -> bool:
    return "single_device" in text or re.search(r"=(max|min|sum)\b", text) is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
