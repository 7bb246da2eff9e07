"""What ``opt`` understands of its words, without running anything."""

from __future__ import annotations

import click
import pytest

from shardpass.cli.opt import opt
from shardpass.cli.opt.command import request_of
from shardpass.cli.opt.ir_printing import EVERY
from shardpass.cli.opt.words import files_and_passes
from shardpass.cli.opt.work import Request


def read(*words: str) -> tuple[list[str], Request]:
    """The files and what is to be done with them."""
    context = opt.make_context("opt", list(words))
    files, passes = files_and_passes(context.params["words"])
    given = context.params["pass_pipeline"]
    return files, request_of(context, passes if given is None else [given], context.params)


@pytest.mark.parametrize(
    ("words", "pipeline"),
    [
        (["--cse"], ("cse",)),
        (["-sdy-basic-propagate", "--cse", "-cse"], ("sdy-basic-propagate", "cse", "cse")),
        (["--sp-annotate=rules=r.toml"], ("sp-annotate{rules=r.toml}",)),
        (
            ["--sp-annotate=rules=r.toml filter='x=0, y=0'", "-cse"],
            ("sp-annotate{rules=r.toml filter='x=0, y=0'}", "cse"),
        ),
        (
            ['-sp-annotate=mesh=data=2,model=4 rules="a b"'],
            ('sp-annotate{mesh=data=2,model=4 rules="a b"}',),
        ),
        (["--acme=opt=a,b opt2={c={d} e}"], ("acme{opt=a,b opt2={c={d} e}}",)),
        (["--acme="], ("acme{}",)),
        (
            ["-pass-pipeline", "builtin.module(func.func(cse))"],
            ("builtin.module(func.func(cse))",),
        ),
        (["--pass-pipeline=a{b=c},d"], ("a{b=c},d",)),
    ],
)
def test_passes(words: list[str], pipeline: tuple[str, ...]) -> None:
    for order in (["f.mlir", *words], [*words, "f.mlir"], [*words, "-o", "-x", "f.mlir"]):
        files, request = read(*order)
        assert (files, request.pipeline) == (["f.mlir"], pipeline)


def test_files_and_standard_input() -> None:
    assert read("-cse", "a", "-", "b")[0] == ["a", "-", "b"]
    assert read("-cse", "--", "a.mlir")[0] == ["a.mlir"]
    assert read()[0] == []


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_options_stand_anywhere_and_take_one_dash_or_two(dashes: str) -> None:
    _, request = read(
        f"{dashes}split-input-file", "a.mlir", f"{dashes}cse", f"{dashes}verify-diagnostics",
        f"{dashes}allow-unregistered-dialect", f"{dashes}mlir-print-debuginfo",
        f"{dashes}mlir-elide-elementsattrs-if-larger=4",
        f"{dashes}mlir-print-ir-after=cse,sp-strip",
        f"{dashes}mlir-print-ir-after", "canonicalize", f"{dashes}mlir-print-ir-before-all",
        f"{dashes}verify-each=0", f"{dashes}output-split-marker=// ===", f"{dashes}mlir-timing",
        "-o=x.mlir",
    )  # fmt: skip
    assert (request.split, request.verify_diagnostics) == ("// -----", "all")
    assert (request.allow_unregistered, request.verify_each, request.timing) == (True, False, True)
    assert request.ir_printing.after == {"cse", "sp-strip", "canonicalize"}
    assert request.ir_printing.before == {EVERY}
    output = request.output
    assert (output.path, output.border, output.form()) == ("x.mlir", "// ===", "text")
    assert (output.printing.debug_info, output.printing.elements_limit) == (True, 4)


def test_values_that_may_be_left_out() -> None:
    assert read("f")[1].split is None
    assert read("-split-input-file=// ====", "f") == (
        ["f"],
        read("f", "-split-input-file=// ====")[1],
    )
    assert read("-split-input-file=// ====", "f")[1].split == "// ===="
    assert read("-verify-diagnostics=only-expected", "f")[1].verify_diagnostics == "only-expected"
    assert read("-verify-each", "f")[1].verify_each is True


@pytest.mark.parametrize(
    ("word", "is_on"),
    [
        ("--mlir-timing", True),
        ("-mlir-timing=true", True),
        ("-mlir-timing=1", True),
        ("--mlir-timing=false", False),
        ("--mlir-timing=0", False),
    ],
)
def test_flags_take_a_value_as_in_llvm(word: str, is_on: bool) -> None:
    assert read(word)[1].timing is is_on


def test_printing_only_changes_is_printing_behind_all() -> None:
    printing = read("-mlir-print-ir-after-change")[1].ir_printing
    assert (printing.after, printing.only_changes) == ({EVERY}, True)
    printing = read("-mlir-print-ir-after-change", "-mlir-print-ir-after=cse")[1].ir_printing
    assert (printing.after, printing.only_changes) == ({"cse"}, True)


@pytest.mark.parametrize(
    ("words", "emit"),
    [
        ([], "text"),
        (["-emit-bytecode"], "bytecode"),
        (["--emit=bytecode"], "bytecode"),
        (["-o", "x.mlirbc"], "bytecode"),
        (["-o", "x.mlirbc", "--emit=text"], "text"),
        (["-o", "x.hlo"], "hlo"),
        (["--emit=portable=1.9.0"], "portable=1.9.0"),
    ],
)
def test_the_form_of_the_output(words: list[str], emit: str) -> None:
    assert read(*words)[1].output.form() == emit


def test_an_exported_function_stays_one_where_the_name_says_nothing_else() -> None:
    forms = [
        read(*words)[1].output.form("exported")
        for words in (["-o", "x"], ["-o", "x.mlir"], ["--batch", "-o", "x"], [])
    ]
    assert forms == ["exported", "text", "exported", "text"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--mlir-timing=maybe", "--mlir-timing is true or false, not 'maybe'"),
        ("-verify-diagnostics=most", "'most' is not one of 'all', 'only-expected'"),
        ("--verify-each=maybe", "'maybe' is not a valid boolean"),
        ("-mlir-elide-elementsattrs-if-larger=x", "'x' is not a valid integer"),
        ("--3d", "no such option: --3d"),
        ("-?", "no such option: -?"),
    ],
)
def test_words_that_cannot_be(word: str, message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        read("f.mlir", word)
    assert message in caught.value.message
