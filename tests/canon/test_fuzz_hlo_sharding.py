"""Ours against XLA's parser on random texts, and each kind of text that only XLA reads."""

import os
import subprocess
import sys
from pathlib import Path

import fuzz_hlo_sharding as fuzz
import pytest
from xla_oracle import Answer, ask

import shardpass
from shardpass.canon import HloSharding
from shardpass.diagnostics import ShardingError


def test_ten_thousand_texts_hold_no_surprise():
    """The program itself, as anyone would run it; its exit status is the verdict."""
    done = subprocess.run(
        [sys.executable, fuzz.__file__, "--count", "10000", "--seed", "7"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(shardpass.__file__).parent.parent)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {line[9:]: int(line[:7]) for line in done.stdout.splitlines() if line[:7].strip()}
    assert counts["unnamed"] == 0
    assert counts["crash of ours"] == 0
    # A generator that has gone stale would agree on everything by refusing everything.
    assert counts["both accept, same canonical text"] > 3000
    assert counts["both refuse"] > 2000


def test_there_are_at_most_ten_kinds_of_disagreement():
    assert len({kind.name for kind in fuzz.KINDS} | {fuzz.UNSETTLED}) == len(fuzz.KINDS) + 1 <= 10


@pytest.fixture(scope="module")
def xlas_answers() -> dict[str, Answer]:
    """XLA's answer to the example of each kind."""
    examples = [kind.example for kind in fuzz.KINDS]
    return dict(zip(examples, ask(examples), strict=True))


@pytest.mark.parametrize("kind", fuzz.KINDS, ids=[kind.name for kind in fuzz.KINDS])
def test_only_xla_reads(kind: fuzz.Kind, xlas_answers: dict[str, Answer]):
    """The kind's example: XLA reads it, ours says why not, and where."""
    assert xlas_answers[kind.example].outcome == "accepted"
    with pytest.raises(ShardingError) as refused:
        HloSharding.parse(kind.example)
    assert fuzz.kind_of(refused.value) is kind
    assert refused.value.diagnostic.excerpt is not None


def test_xlas_unsettled_text_is_settled_in_ours():
    """A merged unreduced subgroup without data tiles: XLA needs a second reading to see that."""
    text = "{devices=[4,1]<=[4] last_tile_dims={unreduced, manual}}"
    once = "{devices=[4]<=[4] last_tile_dims={unreduced}}"
    assert [answer.text for answer in ask([text, once])] == [once, "{unreduced}"]
    assert str(HloSharding.parse(text)) == "{unreduced}" == str(HloSharding.parse(once))


def test_a_surprise_would_be_seen():
    """The comparison finds what is planted: read by ours alone, by XLA alone, two texts."""
    oracle = [
        Answer("refused", "no"),
        Answer("accepted", "{replicated}"),
        Answer("accepted", "{manual}"),
        Answer("aborted", "SIGABRT"),
    ]
    texts = ["{replicated}", "{replicate}", "{replicated}", "{replicated}"]
    findings = fuzz.compare(texts, oracle)
    assert len(findings.unnamed) == 3
    assert findings.aborts == ["{replicated}"]
    assert not findings.is_good


def test_the_oracle_survives_what_kills_xla():
    killing = "{mesh['a'=2], [{'a','a'}]}"
    answers = ask([killing, "{manual}", killing, "{"])
    assert [answer.outcome for answer in answers] == ["aborted", "accepted", "aborted", "refused"]
