"""Dumps between passes, taken from all that a process wrote to standard error."""

from shardpass.cli.opt.ir_printing import EVERY, IrPrinting, dumps, without_steps_between

BEFORE = """\
// -----// IR Dump Before CSEPass: cse //----- //
module {
  func.func @main() {
    return
  }
}


"""
ON_FUNCTION = """\
// -----// IR Dump After FooPass: sdy-foo{a=b c=} //----- //
func.func private @"a b"() {
  return
}

"""
OURS = BEFORE.replace("CSEPass: cse", "sp-strip: sp-strip")
BETWEEN = BEFORE.replace("CSEPass: cse", "shardpass: shardpass")
FAILED = ON_FUNCTION.replace("FooPass: sdy-foo", "FooPass Failed: sdy-foo")
LOG = "I1130 01:57:52.682438    5995 service.cc:153] XLA service initialized\n"
TIMING = "===------===\n   ... Execution time report ...\n===------===\n  0.1  cse\n"
TOLD = f"{LOG}{BEFORE}{ON_FUNCTION}{LOG}{OURS}{BETWEEN}{TIMING}"
PARTS = "".join(
    BEFORE.replace("Before CSEPass: cse", f"{when} sp-verify({n}/3): sp-verify({n}/3)")
    for n in (1, 2, 3)
    for when in ("Before", "After")
)


def test_what_a_dump_says() -> None:
    found = [(d.before, d.name, d.function) for d in dumps(TOLD)]
    assert found == [
        (True, "cse", None),
        (False, "sdy-foo", '@"a b"'),
        (True, "sp-strip", None),
        (True, "shardpass", None),
    ]
    assert [d.text for d in dumps(TOLD)] == [BEFORE, ON_FUNCTION, OURS, BETWEEN]


def sifted(**asked: object) -> str:
    wanted, rest = IrPrinting(**asked).sift(TOLD)  # pyright: ignore[reportArgumentType]
    assert rest == f"{LOG}{LOG}{TIMING}"
    return wanted


def test_what_was_asked_for() -> None:
    assert sifted() == ""
    assert sifted(before=frozenset({EVERY})) == BEFORE + OURS
    assert sifted(after=frozenset({EVERY})) == ON_FUNCTION
    assert sifted(before=frozenset({"sp-strip", "sdy-foo"})) == OURS
    assert sifted(after=frozenset({"sdy-foo"}), before=frozenset({"cse"})) == BEFORE + ON_FUNCTION


def test_a_pass_of_several_parts_begins_with_the_first_and_ends_with_the_last() -> None:
    whole = BEFORE.replace("CSEPass: cse", "sp-verify: sp-verify")
    asked = frozenset({"sp-verify"})
    assert IrPrinting(before=asked).sift(PARTS) == (whole, "")
    assert IrPrinting(after=asked).sift(PARTS) == (whole.replace("Before", "After"), "")


def test_failures() -> None:
    told = f"{LOG}{FAILED}{LOG}"
    assert IrPrinting(only_failures=True).sift(told) == (FAILED, LOG + LOG)


def test_one_that_was_cut_short_by_the_end_of_the_process() -> None:
    told = BEFORE.rstrip("\n}") + "\nLLVM ERROR: no\n"
    assert [d.name for d in dumps(told)] == ["cse"]
    assert list(dumps("")) == []


def test_steps_that_nobody_asked_for() -> None:
    text = "builtin.module(shardpass,cse,shardpass,func.func(x{shardpass=1}),shardpass)"
    assert without_steps_between(text) == "builtin.module(cse,func.func(x{shardpass=1}))"
    assert without_steps_between("builtin.module(sp-a(1/2),cse,sp-a(2/2))") == (
        "builtin.module(sp-a,cse,sp-a)"
    )
