"""What fails in passes goes to a file, with the command that repeats it; and what does not."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shardpass.cli.opt.reproducer import keep_in_temporary_folder
from tests.cli.conftest import PROJECT, Run

GOOD = """\
func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  return %a : tensor<8xf32>
}
"""
FAULTY = GOOD.replace(
    "  return", "  stablehlo.custom_call @Sharding() {has_side_effect = true} : () -> ()\n  return"
)
WARNED = FAULTY.replace("  stable", "  // expected-error @+1 {{carries no}}\n  stable")
BORDER = "// -----\n"


@pytest.fixture(autouse=True)
def faulty(folder: Path) -> None:
    (folder / "d.mlir").write_text(FAULTY)


def kept_by(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The commands that repeat what failed."""
    found = re.findall(
        r"^remark\[reproducer\]: what failed is in (.+)\n  help: to repeat it: (.+)\n",
        done.stderr,
        re.MULTILINE,
    )
    assert all(path in command for path, command in found)
    return [command for _, command in found]


def test_a_fault_of_the_module_is_kept_once(shardpass: Run, folder: Path, temporary: Path) -> None:
    done = shardpass("opt", "d.mlir", "--cse", "--sp-verify")
    assert done.returncode == 1
    (kept,) = temporary.iterdir()
    assert kept_by(done) == [f"shardpass opt {kept} --run-reproducer"]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    first = kept.read_bytes()
    assert first.endswith(
        b'pipeline: "builtin.module(cse,sp-verify)",\n'
        b"      disable_threading: true,\n      verify_each: true\n"
        b"    }\n  }\n#-}\n"
    )
    # The same failure, from another folder's copy and by standard input.
    (folder / "again").mkdir()
    (folder / "again" / "d.mlir").write_text(FAULTY)
    shardpass("opt", "again/d.mlir", "--pass-pipeline=cse,sp-verify")
    assert ([*temporary.iterdir()], kept.read_bytes()) == ([kept], first)
    again = shardpass(*shlex.split(kept_by(done)[0])[1:])
    assert again.returncode == 1
    assert "error[missing-sharding]: " in again.stderr
    assert kept_by(again) == kept_by(done)
    assert [*temporary.iterdir()] == [kept]
    # Other passes, another file.
    shardpass("opt", "d.mlir", "--sp-verify")
    assert len([*temporary.iterdir()]) == 2


def test_a_failure_behind_the_passes_is_kept(shardpass: Run, temporary: Path) -> None:
    """Here the form of the output, which is part of the command."""
    done = shardpass("opt", "d.mlir", "--cse", "--emit=exported", "-o", "x.exported")
    assert done.returncode == 1, done.stderr
    (command,) = kept_by(done)
    assert command.endswith("--run-reproducer --emit=exported -o /dev/null")
    again = shardpass(*shlex.split(command)[1:])
    fault = "cannot be written as a serialized jax.export.Exported"
    assert (again.returncode, fault in again.stderr, fault in done.stderr) == (1, True, True)


def test_the_part_that_failed_is_kept(shardpass: Run, folder: Path, temporary: Path) -> None:
    (folder / "d.mlir").write_text(BORDER.join([GOOD, FAULTY, GOOD]))
    done = shardpass("opt", "d.mlir", "--split-input-file", "--sp-verify")
    (kept,) = temporary.iterdir()
    assert len(kept_by(done)) == 1
    assert kept.read_text().split("\n", 1)[1].startswith(FAULTY)


def test_what_came_by_a_pipe_is_kept(shardpass: Run, temporary: Path) -> None:
    """It can be read but once."""
    done = shardpass("opt", "/dev/stdin", "--sp-verify", input=FAULTY)
    assert done.returncode == 1
    (kept,) = temporary.iterdir()
    assert kept.read_text().split("\n", 1)[1].startswith(FAULTY)


def test_each_file_of_a_batch_has_its_own(shardpass: Run, folder: Path, temporary: Path) -> None:
    (folder / "e.mlir").write_text(FAULTY.replace("8x", "4x"))
    (folder / "f.mlir").write_text(GOOD)
    words = ("--batch", "d.mlir", "f.mlir", "e.mlir", "--sp-verify", "-o", "tmp")
    done = shardpass("opt", *words)
    assert done.returncode == 1
    assert [Path(shlex.split(command)[2]).name.split("-")[2] for command in kept_by(done)] == [
        "d",
        "e",
    ]


@pytest.mark.parametrize(
    ("text", "words", "code"),
    [
        (FAULTY, ("--sp-verify", "--quiet"), 1),
        (WARNED, ("--sp-verify", "--verify-diagnostics"), 0),
        (FAULTY, ("--sp-verify", "--verify-diagnostics"), 1),
        (GOOD, ("--sp-verify",), 0),
        ("func.func @main(", ("--sp-verify",), 1),
        ("\xff", ("--sp-verify",), 1),
        (GOOD, ("--sp-anotate",), 2),
        (GOOD, ("--cse", "--emit-bytecode", "--emit-bytecode-version=99"), 1),
    ],
)
def test_what_is_not_kept(
    text: str,
    words: tuple[str, ...],
    code: int,
    shardpass: Run,
    folder: Path,
    temporary: Path,
) -> None:
    (folder / "d.mlir").write_bytes(text.encode("latin-1"))
    done = shardpass("opt", "d.mlir", *words)
    assert done.returncode == code, done.stderr
    assert "reproducer" not in done.stderr
    assert [*temporary.iterdir()] == []


def test_a_file_may_be_asked_for(shardpass: Run, folder: Path, temporary: Path) -> None:
    words = ("--sp-verify", "-mlir-pass-pipeline-crash-reproducer=kept.mlir")
    done = shardpass("opt", "d.mlir", *words)
    assert done.returncode == 1
    assert kept_by(done) == ["shardpass opt kept.mlir --run-reproducer"]
    again = shardpass("opt", "kept.mlir", "-run-reproducer")
    assert again.returncode == 1
    assert "error[missing-sharding]" in again.stderr
    (folder / "kept.mlir").unlink()
    # What cannot be read is no failure of a pass.
    (folder / "e.mlir").write_text("func.func @main(")
    shardpass("opt", "e.mlir", *words)
    assert not (folder / "kept.mlir").exists()
    # Who asks for a file gets it, whatever is compared, and however little is said.
    for more in ("--quiet", "--verify-diagnostics"):
        shardpass("opt", "d.mlir", *words, more)
        (folder / "kept.mlir").unlink()
    shardpass("opt", "m.mlir", *words)
    assert not (folder / "kept.mlir").exists()
    assert [*temporary.iterdir()] == []


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("d.mlir",), "input, ./d.mlir"),
        (("link.mlir",), "input, ./d.mlir"),
        (("m.mlir", "-o", "d.mlir"), "output, ./d.mlir"),
    ],
)
def test_what_is_read_or_written_is_not_replaced(
    words: tuple[str, ...], what: str, shardpass: Run, folder: Path
) -> None:
    (folder / "link.mlir").symlink_to(folder / "d.mlir")
    done = shardpass("opt", *words, "--sp-verify", "--mlir-pass-pipeline-crash-reproducer=./d.mlir")
    assert (done.returncode, done.stderr) == (
        2,
        f"error[usage]: --mlir-pass-pipeline-crash-reproducer names the {what}\n"
        "  help: name a file of its own: what failed would be written over it\n",
    )
    assert (folder / "d.mlir").read_text() == FAULTY


def test_a_reproducer_is_not_written_over_by_what_it_repeats(shardpass: Run) -> None:
    option = "--mlir-pass-pipeline-crash-reproducer=kept.mlir"
    assert shardpass("opt", "d.mlir", "--sp-verify", option).returncode == 1
    done = shardpass("opt", "kept.mlir", "--run-reproducer", option)
    assert (done.returncode, "names the input, kept.mlir" in done.stderr) == (2, True)


def test_a_reproducer_is_a_file(shardpass: Run) -> None:
    done = shardpass("opt", "d.mlir", "--mlir-pass-pipeline-crash-reproducer=-")
    assert done.returncode == 2
    assert "'-' stands for a standard stream with modules alone" in done.stderr


def test_a_failure_that_cannot_be_kept_is_told_all_the_same(folder: Path) -> None:
    code = (
        "def full(*_, **settings): raise OSError(28, 'No room')\n"
        "import shardpass.cli.opt.reproducer as reproducer\n"
        "from shardpass.cli.main import main\n"
        "reproducer.tempfile = type('', (), {'gettempdir': lambda: '/', 'mkstemp': full})\n"
        "main(['opt', 'd.mlir', '--sp-verify'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "error[missing-sharding]" in done.stderr
    assert done.stderr.endswith(
        "\nremark[reproducer]: what failed could not be kept: cannot write to the temporary "
        "folder: no room\n"
    )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "place").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "place"))
    return tmp_path / "place"


def keep(text: bytes = b"x") -> Path:
    return Path(keep_in_temporary_folder("a b/m.mlir", ".mlir", b"done", lambda path: text))


def test_a_link_in_the_place_is_not_followed(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    victim = tmp_path_factory.mktemp("victim") / "f"
    victim.write_text("mine")
    path = keep()
    path.unlink()
    path.symlink_to(victim)
    assert keep(b"y") == path
    assert (victim.read_text(), path.is_symlink(), path.read_bytes()) == ("mine", False, b"y")
    assert [*place.iterdir()] == [path]


def test_what_the_system_does_not_replace_is_left_alone(place: Path) -> None:
    """As another user's file, here by a folder, which even root does not rename a file onto."""
    path = keep()
    path.unlink()
    path.mkdir()
    other = keep(b"y")
    assert (other.read_bytes(), stat.S_IMODE(other.stat().st_mode)) == (b"y", 0o600)
    assert sorted(place.iterdir()) == sorted([path, other])


def test_the_name_tells_whose_and_what(place: Path) -> None:
    name = keep().name
    assert re.fullmatch(rf"shardpass-{os.getuid()}-m-[0-9a-f]{{16}}\.mlir", name)
    assert keep_in_temporary_folder("m", ".mlir", b"other", lambda path: b"") != name
    odd = Path(keep_in_temporary_folder("/../$(x).mlir", ".mlir", b"", lambda path: path.encode()))
    assert odd.name.startswith(f"shardpass-{os.getuid()}-x-")
    assert odd.read_text() == str(odd)
