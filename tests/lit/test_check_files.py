"""Directives that stand beside a test, or in the parts that it is split into."""

from pathlib import Path

import pytest

from shardpass.lit.lint import lint_files, lint_text

SPLIT = """\
# RUN: split-file %s %t
# RUN: %shardpass opt %t/a.mlir --cse | %filecheck %t/a.mlir
# RUN: %shardpass opt %t/a.mlir --cse | %filecheck %t/b.checks --check-prefix=B

//--- a.mlir
// CHECK: func.func @a
func.func @a() {
  // CHECK-NEXT: return
  return
}
//--- b.checks
B: return
# B-NOT: CHECK
"""


def split_faults(old: str = "", new: str = "") -> list[str]:
    found = lint_text(Path("suite/t.test"), SPLIT.replace(old, new, 1) if old else SPLIT)
    return [f"{each.location.line}: {each.message}" for each in found if each.location]


def test_a_split_test_without_a_fault():
    assert split_faults() == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("// CHECK-NEXT", "// CHEKC-NEXT", "8: CHEKC-NEXT: not read; did you mean CHECK-NEXT:?"),
        ("# B-NOT", "# B-NTO", "13: B-NTO: no such directive"),
        # Each part has prefixes of its own.
        ("# B-NOT", "# CHECK-NOT", "13: CHECK-NOT: no RUN line has --check-prefix=CHECK"),
        ("# B-NOT", "# CHECK-NEXT", "13: CHECK-NEXT: no RUN line has --check-prefix=CHECK"),
        ("// CHECK-NEXT", "// B-NEXT", "8: B-NEXT: no RUN line has --check-prefix=B"),
        ("=B", "=C", "3: no C: line in part `b.checks`"),
        ("B: return", "", "3: nothing but B-NOT: an empty output passes"),
        ("t/b.checks", "t/c.checks", "3: no part `c.checks` in the file, which %filecheck reads"),
    ],
)
def test_the_directives_of_parts_are_linted(old: str, new: str, fault: str):
    assert any(found.startswith(fault) for found in split_faults(old, new)), split_faults(old, new)


def test_a_check_of_the_whole_test_reads_its_parts():
    assert split_faults("%filecheck %t/a.mlir", "%filecheck %s") == []


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "Inputs").mkdir()
    for name, prefix in (("one", "CHECK"), ("two", "TWO")):
        (tmp_path / f"{name}.test").write_text(
            f"# RUN: %shardpass opt %s --cse | "
            f"%filecheck %S/Inputs/shared.checks --check-prefix={prefix}\n"
        )
    (tmp_path / "Inputs" / "shared.checks").write_text("// CHECK: a\n// TWO: b\n")
    return tmp_path


def faults(suite: Path, *names: str, are_all: bool = True) -> list[str]:
    paths = [suite / f"{name}.test" for name in names or ("one", "two")]
    return [
        f"{Path(f.location.file).name}:{f.location.line}: {f.message}"
        for f in lint_files(paths, are_all=are_all)
        if f.location
    ]


def test_a_shared_file_without_a_fault(suite: Path):
    assert faults(suite) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("// CHEKC-NEXT: x", "3: CHEKC-NEXT: not read; did you mean CHECK-NEXT:?"),
        ("// TWO-NXT: x", "3: TWO-NXT: no such directive"),
        ("// THREE: x", "3: THREE: no RUN line has --check-prefix=THREE"),
        ("// expected-error {{x}}", "3: expected-error: no RUN line has --verify-diagnostics"),
    ],
)
def test_a_file_beside_the_tests_is_linted_once(suite: Path, line: str, fault: str):
    with (suite / "Inputs" / "shared.checks").open("a") as file:
        file.write(line + "\n")
    (found,) = faults(suite)
    assert found.startswith(f"shared.checks:{fault}")


def test_other_tests_may_read_it_too(suite: Path):
    """Of one test alone nobody knows who reads the prefixes that it does not."""
    assert faults(suite, "one", are_all=False) == []
    assert faults(suite, "one") == ["shared.checks:2: TWO: no RUN line has --check-prefix=TWO"]


def test_a_prefix_without_a_line_beside_the_tests(suite: Path):
    (suite / "Inputs" / "shared.checks").write_text("// CHECK-NOT: a\n")
    assert faults(suite) == [
        "shared.checks:1: nothing but CHECK-NOT: an empty output passes",
        "shared.checks:1: no TWO: line in the file",
    ]


def test_a_file_that_is_not_there(suite: Path):
    (suite / "Inputs" / "shared.checks").unlink()
    assert [found.partition(":")[0] for found in faults(suite)] == ["one.test", "two.test"]
    assert faults(suite)[0].endswith("shared.checks, which %filecheck reads")


def test_a_file_that_is_no_text(suite: Path):
    (suite / "Inputs" / "shared.checks").write_bytes(b"\xff")
    (fault,) = lint_files([suite / "one.test"])
    assert (fault.slug, fault.message.endswith("not text in UTF-8")) == ("unreadable", True)
