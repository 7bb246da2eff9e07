"""A file that is written is written whole, whatever happens meanwhile."""

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, load, save
from shardpass.mlir.files import check_target, write_whole, writing_whole

PROJECT = Path(__file__).resolve().parents[2]


def refused(path: str | Path, data: bytes = b"new") -> str:
    with pytest.raises(ShardingError) as caught:
        write_whole(path, data)
    assert caught.value.slug == "unwritable"
    return str(caught.value)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("name", "emit", "is_bytecode"),
    [
        ("a.mlir", None, False),
        ("a", None, False),
        ("a.mlirbc", None, True),
        ("a.bc", None, True),
        ("a.mlir", "bytecode", True),
        ("a.mlirbc", "text", False),
    ],
)
def test_the_form_follows_the_name_unless_said(
    name: str, emit: Any, is_bytecode: bool, module: Module, tmp_path: Path
) -> None:
    save(module, tmp_path / name, emit=emit)
    written = (tmp_path / name).read_bytes()
    assert written.startswith(b"ML\xefR") == is_bytecode
    assert load(tmp_path / name).text(debug_info=True) == load(module.bytecode()).text()
    assert names_in(tmp_path) == [name]


def test_a_form_that_does_not_exist(module: Module, tmp_path: Path) -> None:
    form: Any = "bytcode"
    with pytest.raises(ShardingError) as caught:
        save(module, tmp_path / "a.mlir", emit=form)
    assert caught.value.slug == "bad-option"
    assert caught.value.diagnostic.help == 'did you mean "bytecode"?'
    assert "text, bytecode, portable, exported, hlo, hlo-proto, not as 'bytcode'" in str(
        caught.value
    )
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("path", [5, None, b"a.mlir"])
def test_what_is_no_path_is_not_written_to(module: Module, path: Any) -> None:
    message = f"cannot save a module to {type(path).__name__}"
    with pytest.raises(ShardingError, match=message) as caught:
        save(module, path)
    assert caught.value.slug == "abstract-type"


def test_what_is_no_module_is_not_saved(tmp_path: Path) -> None:
    nothing: Any = None
    with pytest.raises(ShardingError, match="cannot save a NoneType as a module") as caught:
        save(nothing, tmp_path / "a.mlir")
    assert caught.value.slug == "abstract-type"
    assert names_in(tmp_path) == []


def test_new_files_follow_the_umask_and_old_ones_keep_their_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "new", b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    write_whole(tmp_path / "new", b"2")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604
    assert (tmp_path / "new").read_bytes() == b"2"


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "target"
    target.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("folder/target")
    write_whole(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert names_in(tmp_path / "folder") == ["target"]


def test_a_link_to_nowhere_makes_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"data")
    reader.join(10)
    assert read == [b"data"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")

    def fail() -> None:
        with writing_whole(target) as file:
            file.write(b"new")
            assert len(names_in(tmp_path)) == 2
            raise KeyError("of the block")

    with pytest.raises(KeyError, match="of the block"):
        fail()
    assert target.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "cannot write to a file without a name (the name given is empty)"),
        ("a\0b", "cannot write a\\0b: a null character in the name"),
    ],
)
def test_names_that_no_file_has(name: str, said: str) -> None:
    assert refused(name) == said


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "none" / "a.mlir"
    text = refused(path)
    assert text == (
        f"cannot write {path}: the folder {tmp_path / 'none'} does not exist "
        f"(make it first: mkdir -p {tmp_path / 'none'})"
    )
    with pytest.raises(ShardingError, match="does not exist"):
        check_target(path)
    assert names_in(tmp_path) == []


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"cannot write {tmp_path}: it is a folder"
    (tmp_path / "file").write_bytes(b"")
    assert "does not exist" in refused(tmp_path / "file" / "a.mlir")


def test_a_full_device() -> None:
    assert refused("/dev/full") == "cannot write /dev/full: no space left on device"


@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
def test_a_disk_that_fails_leaves_the_old_file(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.mlir"
    target.write_bytes(b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    assert refused(target) == f"cannot write {target}: no space left on device"
    assert target.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a.mlir"]


def test_a_full_disk_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    """The system refuses to let the file grow, as a full disk does."""
    target = tmp_path / "a.mlir"
    target.write_bytes(b"old")
    script = f"""
        import resource, signal
        from shardpass.diagnostics import ShardingError
        from shardpass.mlir.files import write_whole
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            write_whole({str(target)!r}, b"x" * 100_000)
        except ShardingError as error:
            print(error.slug, error)
    """
    run = _python(script)
    assert run.stdout == f"unwritable cannot write {target}: file too large\n"
    assert target.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a.mlir"]


@pytest.mark.parametrize("before", ["fsync", "replace"])
def test_a_process_killed_while_writing_leaves_the_old_file(before: str, tmp_path: Path) -> None:
    target = tmp_path / "a.mlir"
    target.write_bytes(b"old")
    script = f"""
        import os, signal
        from shardpass.mlir.files import write_whole
        os.{before} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        write_whole({str(target)!r}, b"new" * 1000)
    """
    assert _python(script).returncode == -signal.SIGKILL
    assert target.read_bytes() == b"old"
    write_whole(target, b"after")
    assert target.read_bytes() == b"after"


def test_an_interrupted_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a.mlir", b"new")
    assert names_in(tmp_path) == []


def test_a_long_name(tmp_path: Path) -> None:
    """The file beside the target has a name that still fits where the target's does."""
    target = tmp_path / ("n" * 255)
    write_whole(target, b"new")
    assert target.read_bytes() == b"new"
    assert names_in(tmp_path) == ["n" * 255]
    assert refused(tmp_path / ("n" * 256)).endswith("file name too long")


def _python(script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
