"""Passes that other distributions bring: found, run, refused; each by a real installed one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.passes import build, run_pipeline

PROJECT = Path(__file__).resolve().parents[2]

CODE = '''\
from dataclasses import dataclass
from typing import ClassVar

from jax.extend.mlir import ir
from shardpass import Pass
from shardpass.passes import option


@dataclass(frozen=True, kw_only=True)
class Mark(Pass):
    """Write a word onto the module."""

    name: ClassVar[str] = "acme-mark"
    word: str = option("seen", help="what to write")

    def run(self, root, sink):
        root.attributes["acme.mark"] = ir.StringAttr.get(self.word)


class OtherName(Mark):
    name = "acme-other"


number = 3
'''
TEXT = "func.func @main() {\n  return\n}\n"


def install(folder: Path, name: str, code: str, **entries: str) -> None:
    """A distribution in ``folder`` as pip leaves one: a module, and a folder of facts beside it."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(code)
    facts = folder / f"{module}-1.2.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = (f"{key.replace('_', '-')} = {module}:{value}\n" for key, value in entries.items())
    (facts / "entry_points.txt").write_text("[shardpass.passes]\n" + "".join(lines))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that Python looks into; what it imports from there is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("acme_passes", "acme_broken", "acme_second"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def refused(pipeline: str) -> tuple[str, str]:
    with pytest.raises(ShardingError) as caught:
        build(pipeline)
    excerpt = caught.value.diagnostic.excerpt
    assert excerpt is not None
    assert excerpt.text == pipeline
    return caught.value.slug, caught.value.diagnostic.message


def test_a_pass_of_another_distribution_runs_by_its_name(site: Path) -> None:
    install(site, "acme-passes", CODE, acme_mark="Mark")
    module = run_pipeline(TEXT, "cse,acme-mark{word=done},canonicalize").module
    assert 'module attributes {acme.mark = "done"}' in module.text()


def test_nothing_is_imported_until_the_pass_is_named(site: Path) -> None:
    install(site, "acme-broken", "raise RuntimeError('no\\n license')\n", acme_mark="Mark")
    run_pipeline(TEXT, "cse,sp-strip")
    assert "acme_broken" not in sys.modules
    assert refused("cse,acme-mark") == (
        "bad-plugin",
        'the pass "acme-mark" of acme-broken 1.2 cannot be imported: RuntimeError: no license',
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("Nothing", "cannot be imported: AttributeError: module 'acme_passes' has no attribute"),
        ("number", "is no pass: acme_passes:number is of type int"),
        ("dataclass", "is no pass: acme_passes:dataclass is of type function"),
        ("ClassVar", "is no pass: acme_passes:ClassVar is of type _SpecialForm"),
        ("OtherName", "calls itself 'acme-other'"),
        ("Pass", "calls itself None"),
    ],
)
def test_what_is_no_pass_of_that_name(site: Path, value: str, message: str) -> None:
    install(site, "acme-passes", CODE, acme_mark=value)
    slug, said = refused("acme-mark")
    assert slug == "bad-plugin"
    assert said.startswith(f'the pass "acme-mark" of acme-passes 1.2 {message}')


def test_options_that_no_text_can_set(site: Path) -> None:
    code = CODE.replace(
        "    word: str",
        "    sizes: tuple[int, ...] = (1, 2)\n    f: object | int = None\n    word: str",
    )
    install(site, "acme-passes", code, acme_mark="Mark")
    assert refused("acme-mark") == (
        "bad-plugin",
        'the pass "acme-mark" of acme-passes 1.2 has options that no text can set: "sizes" is of '
        'type tuple, "f" is of type object | int',
    )


@pytest.mark.parametrize(
    ("name", "ours"),
    [("sp-strip", "shardpass itself"), ("cse", "jaxlib"), ("sdy-close-shardings", "jaxlib")],
)
def test_a_name_that_is_taken(site: Path, name: str, ours: str) -> None:
    install(site, "acme-passes", CODE, **{name.replace("-", "_"): "Mark"})
    assert refused(name) == (
        "pass-clash",
        f'2 passes are called "{name}": of {ours} and of acme-passes 1.2',
    )
    run_pipeline(TEXT, "sp-verify,canonicalize")


def test_two_distributions_with_one_name(site: Path) -> None:
    install(site, "acme-passes", CODE, acme_mark="Mark")
    install(site, "acme-second", CODE, acme_mark="Mark")
    slug, said = refused("acme-mark")
    assert slug == "pass-clash"
    assert sorted(said.removeprefix('2 passes are called "acme-mark": of ').split(" and of ")) == [
        "acme-passes 1.2",
        "acme-second 1.2",
    ]


def test_a_misspelt_name_of_theirs(site: Path) -> None:
    install(site, "acme-passes", CODE, acme_mark="Mark")
    with pytest.raises(ShardingError, match='did you mean "acme-mark"'):
        build("acme-marc")


def test_the_command_line_has_them(site: Path) -> None:
    code = f'{CODE}\n\nclass Second(Mark):\n    "Second."\n    name = "acme-second"\n'
    install(site, "acme-passes", code, acme_second="Second", acme_mark="Mark", acme_twice="Mark")
    install(site, "acme-broken", "import nothing_there\n", acme_broken="Pass", acme_twice="Pass")
    (site / "m.mlir").write_text(TEXT)

    def shardpass(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "shardpass", *words],
            cwd=site,
            env={**os.environ, "PYTHONPATH": f"{PROJECT}{os.pathsep}{site}"},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout

    assert "{acme.mark = " in shardpass("opt", "m.mlir", "-acme-mark=word=x", "--cse")
    assert "{acme.mark = " in shardpass("shard", "m.mlir", "--pipeline=acme-mark", "-o", "-")
    listed = shardpass("opt", "--list-passes")
    clash = '    2 passes are called "acme-twice": of '
    assert (
        "\n\nOf acme-passes 1.2:\nacme-mark\n    Write a word onto the module.\n"
        "      word: what to write (default seen)\n"
        "acme-second\n    Second.\n      word: what to write (default seen)\n"
        f"acme-twice\n{clash}"
    ) in listed
    assert (
        "\n\nOf acme-broken 1.2:\nacme-broken\n"
        '    the pass "acme-broken" of acme-broken 1.2 cannot be imported'
    ) in listed
    assert (listed.count("\nOf "), listed.count(clash)) == (2, 2)
