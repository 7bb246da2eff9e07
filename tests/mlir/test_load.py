"""Modules from wherever they are, told apart by content; and what is no module."""

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from shardpass.diagnostics import ShardingError
from shardpass.mlir import Module, load

TEXT = """\
func.func @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.add %arg0, %arg0 : tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""


def paths(module: Module) -> list[str]:
    return [value.path for value in (*module.arguments, *module.results)]


def refused(source: Any, **options: Any) -> ShardingError:
    with pytest.raises(ShardingError) as caught:
        load(source, **options)
    return caught.value


def test_the_forms_of_one_module(module: Module, lowered: Any, artifact: bytes) -> None:
    assert paths(module) == ["params.w", "x", "result.out"]
    for source in (lowered, module.ir, module, module.bytecode(), module.text(), artifact):
        assert paths(load(source)) == ["params.w", "x", "result.out"]


@pytest.mark.parametrize("suffix", ["", ".mlir", ".mlirbc", ".txt", ".toml", ".stablehlo"])
def test_content_decides_and_not_the_name(
    suffix: str, module: Module, artifact: bytes, tmp_path: Path
) -> None:
    for content in (module.text().encode(), module.bytecode(), artifact):
        file = tmp_path / f"step{suffix}"
        file.write_bytes(content)
        for path in (file, str(file)):
            read = load(path)
            assert paths(read) == ["params.w", "x", "result.out"]
            assert read.name == str(file)
            assert read.source_text == (None if content[:2] == b"ML" else content.decode())


def test_names_for_messages(module: Module, lowered: Any) -> None:
    assert load(lowered).name == "<lowered>"
    assert load(module.ir).name == "<module>"
    assert load(TEXT).name == "<text>"
    assert load(TEXT.encode()).name == "<bytes>"
    assert load(TEXT, name="step.mlir").name == "step.mlir"
    assert load(module, name="again").name == "again"
    assert load(module) is module


def test_an_ir_module_is_not_copied(module: Module) -> None:
    assert load(module.ir).ir is module.ir


def test_text_on_one_line_is_text() -> None:
    assert load("func.func @main() { return }").main.name.value == "main"


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_line_endings(ending: str) -> None:
    assert paths(load(TEXT.replace("\n", ending).encode())) == ["arg0", "result"]


def test_a_clone_shares_nothing_but_the_context(module: Module) -> None:
    clone = module.clone()
    assert clone.text() == module.text()
    assert clone.ir.context is module.ir.context
    clone.root.attributes["x.y"] = ir.UnitAttr.get(clone.ir.context)
    assert "x.y" not in module.root.attributes


def test_text_ends_with_one_newline_and_is_stable(module: Module) -> None:
    text = module.text()
    assert text.endswith(")\n")
    assert not text.endswith("\n\n")
    assert load(text).text() == load(load(text).text()).text()


def test_locations_are_printed_where_the_source_had_some(module: Module) -> None:
    assert "loc(" not in load(TEXT).text()
    assert "loc(" in load(TEXT).text(debug_info=True)
    assert "params['w']" in module.text()
    assert "loc(" not in module.text(debug_info=False)
    assert "params['w']" in load(module.text()).text()


@pytest.mark.parametrize("content", [b"", b" \n\t\n", "\n"])
def test_empty(content: bytes | str) -> None:
    error = refused(content, name="step.mlir")
    assert (error.slug, str(error)) == ("unreadable", "step.mlir is empty")


def test_a_folder_a_missing_file_and_a_locked_one(tmp_path: Path) -> None:
    assert str(refused(tmp_path)) == f"cannot read {tmp_path}: is a directory"
    missing = tmp_path / "none.mlir"
    assert str(refused(missing)) == f"cannot read {missing}: no such file or directory"
    assert str(refused(str(missing / "below"))).endswith("no such file or directory")
    assert refused("").slug == refused("a\0b").slug == refused("x" * 5000).slug == "unreadable"
    assert str(refused("a\0b")) == "cannot read a\\0b: embedded null byte"


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", deny)
    error = refused(tmp_path / "a.mlir")
    assert error.slug == "unreadable"
    assert str(error).endswith("a.mlir: permission denied")


def test_neither_text_nor_bytecode() -> None:
    error = refused(b"module {\n}\xff\xfe", name="a.mlir")
    assert error.slug == "unreadable"
    assert str(error) == "a.mlir is neither MLIR bytecode nor text: byte 10 is not UTF-8"
    unknown = b"\x8eABC\r\n\x1a\n" + bytes(40)
    assert str(refused(unknown, name="a.mlir")).endswith("byte 0 is not UTF-8")
    assert refused(TEXT.encode("utf-16"), name="a.mlir").slug == "unreadable"


def test_zeros_hold_no_function() -> None:
    error = refused(bytes(64), name="a.mlir")
    assert error.slug == "unreadable"
    assert str(error).startswith("a.mlir holds no function")


def test_a_module_of_no_functions() -> None:
    assert refused("module {\n}").slug == "unreadable"


def test_what_is_not_a_module_at_all() -> None:
    error = refused(3)
    assert error.slug == "abstract-type"
    assert error.diagnostic.message == "cannot load a module from int"


def test_a_syntax_error_has_its_line_and_a_caret() -> None:
    bad = TEXT.replace("tensor<8xf32>\n  return", "tensor<8xf32\n  return")
    (fault,) = refused(bad, name="step.mlir").diagnostics
    assert fault.slug == "mlir"
    assert str(fault.location) == "step.mlir:2:49"
    assert fault.excerpt is not None
    assert fault.excerpt.text == "  %0 = stablehlo.add %arg0, %arg0 : tensor<8xf32"
    assert fault.excerpt.column == 49


def test_carets_count_characters_and_not_bytes() -> None:
    bad = TEXT.replace("%arg0 :", '%arg0 {a = "ééé", b = "x" !} :')
    (fault,) = refused(bad, name="step.mlir").diagnostics
    assert fault.excerpt is not None
    assert fault.excerpt.text[fault.excerpt.column - 2 :].startswith(" !}")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_byte_order_mark_is_no_part_of_the_text(ending: str) -> None:
    first = 'func.func @main(%a: tensor<4xf32> loc("w"))'
    good = ending.join([f"\ufeff{first} -> tensor<4xf32> {{", "return %a : tensor<4xf32>", "}"])
    assert [a.path for a in load(good.encode()).arguments] == ["w"]
    assert [a.path for a in load(good).arguments] == ["w"]
    with pytest.raises(ShardingError) as caught:
        load(f"\ufefffunc.func @main(% {ending}  x".encode(), name="m.mlir")
    assert str(caught.value.diagnostic.location) == "m.mlir:1:17"
    assert caught.value.diagnostic.excerpt is not None
    assert caught.value.diagnostic.excerpt.text == "func.func @main(% "
    with pytest.raises(ShardingError, match=r"^m.mlir is empty$"):
        load("\ufeff\n".encode(), name="m.mlir")


def test_notes_say_the_line_and_not_mlirs_name_for_the_text() -> None:
    bad = TEXT.replace("  return", "  %0 = stablehlo.abs %arg0 : tensor<8xf32>\n  return")
    (fault,) = refused(bad, name="step.mlir").diagnostics
    assert str(fault.location) == "step.mlir:3:3"
    assert fault.notes == ("line 2: previously defined here",)


def test_a_verifier_error_is_passed_on() -> None:
    bad = TEXT.replace("main(%arg0: tensor<8xf32>)", "main(%arg0: tensor<9xf32>)")
    assert refused(bad).slug == "mlir"


def test_faults_of_shardings_name_the_argument() -> None:
    """Shardy's verifier speaks of ``arg 1``; people know a name and a place."""
    bad = (
        'sdy.mesh @mesh = <["x"=2]>\n'
        "func.func @main(%arg0: tensor<8xf32>,\n"
        '    %arg1: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
        " loc(\"p['é']\")) {\n"
        "  return\n"
        "}\n"
    )
    (fault,) = refused(bad, name="step.mlir").diagnostics
    assert fault.message.startswith('argument 1 ("p.é"): ')
    assert str(fault.location) == "step.mlir:3:5"
    assert fault.path == "p.é"
    assert fault.help is not None


def test_quantized_types_in_every_form() -> None:
    kind = "tensor<8x!quant.uniform<i8:f32, 2.000000e+00:15>>"
    text = f"func.func @main(%arg0: {kind}) -> {kind} {{\n  return %arg0 : {kind}\n}}\n"
    module = load(text)
    # What is serialized is VHLO afterwards.
    artifact = stablehlo.serialize_portable_artifact(load(text).ir, stablehlo.get_minimum_version())
    for source in (module, module.text(), module.bytecode(), artifact):
        assert str(load(source).arguments[0].type) == kind


def test_unknown_dialects_are_refused() -> None:
    error = refused(TEXT.replace("stablehlo.add", "mydialect.add"))
    assert error.slug == "mlir"


@pytest.mark.parametrize("form", ["bytecode", "artifact"])
def test_bytecode_that_is_cut_short(form: str, module: Module, artifact: bytes) -> None:
    """Wherever it is cut: an error with a remedy, never anything else."""
    data = module.bytecode() if form == "bytecode" else artifact
    for length in range(4, len(data), 13):
        error = refused(data[:length], name="a.mlirbc")
        assert error.slug in ("mlir", "unreadable")
        assert error.diagnostic.help == (
            "it may be cut short, or written by a StableHLO newer than the installed one"
        )
        location = error.diagnostic.location
        assert (location.file if location else "a.mlirbc") == "a.mlirbc"


def test_text_that_is_cut_short(module: Module) -> None:
    """Cut anywhere, it is an error at a line of the file, or still a module."""
    text = module.text()
    for length in range(1, text.rindex("return"), 17):
        error = refused(text[:length].encode(), name="a.mlir")
        assert error.slug in ("mlir", "unreadable")
        if error.slug == "mlir":
            assert error.diagnostic.location is not None
            assert error.diagnostic.location.file == "a.mlir"
            assert 1 <= error.diagnostic.location.line <= text.count("\n") + 1


def _outcome(data: bytes) -> str:
    """How ``load`` ends in a child process: MLIR aborts on some broken bytecode."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            load(data)
            os.write(writer, b"loaded")
        except ShardingError as error:
            os.write(writer, error.slug.encode())
        except BaseException as error:
            os.write(writer, repr(error).encode()[:500])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return said or f"died {code}"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
def test_bytecode_with_wrong_bytes(module: Module) -> None:
    """A module, a ``ShardingError``, or MLIR's own death; nothing else ever leaves ``load``."""
    chance = random.Random(2)
    data = module.bytecode()
    outcomes = set()
    for _ in range(60):
        broken = bytearray(data)
        for _ in range(chance.choice([1, 3])):
            broken[chance.randrange(4, len(broken))] = chance.randrange(256)
        outcomes.add(_outcome(bytes(broken)))
    for _ in range(15):
        outcomes.add(_outcome(b"ML\xefR" + chance.randbytes(chance.randrange(200))))
    deaths = {f"died {-signal.SIGABRT}", f"died {-signal.SIGSEGV}"}
    assert {"loaded", "mlir"} <= outcomes <= {"loaded", "mlir", "unreadable"} | deaths


@pytest.mark.parametrize("form", ["bytecode", "artifact"])
def test_names_that_are_not_utf_8(form: str, module: Module, artifact: bytes) -> None:
    """What MLIR says of them is bytes; an error comes of it, and not the end of the process."""
    data, name = (
        (module.bytecode(), b"stablehlo\0") if form == "bytecode" else (artifact, b"vhlo\0")
    )
    assert data.count(name) == 1
    error = refused(data.replace(name, b"\xff" + name[1:]), name="a.mlirbc")
    assert error.slug in ("mlir", "unreadable")
    assert "MLIR said something that is not UTF-8" in str(error.diagnostics[0].to_json())


def test_a_file_without_a_name() -> None:
    error = refused("")
    assert (error.slug, str(error)) == (
        "unreadable",
        "cannot read a file without a name (the name given is empty)",
    )


def test_modules_in_a_module() -> None:
    one = f"module @a {{\n{TEXT}}}\n"
    error = refused(one + one.replace("@a", ""), name="m.mlir")
    assert (error.slug, error.diagnostic.message) == (
        "unreadable",
        "m.mlir holds 2 modules and no function outside them: @a on line 1, one without a name on "
        "line 7",
    )
    assert str(error.diagnostic.location) == "m.mlir:7:1"
    error = refused(f"module {{\n{one}}}\n", name="m.mlir")
    assert error.diagnostic.message == (
        "m.mlir holds a module and no function outside it: @a on line 2"
    )


def test_the_text_of_an_error_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(TEXT.replace("return %0", "return %b"))
    assert str(refused(tmp_path / "m.mlir")).startswith(
        f"{tmp_path / 'm.mlir'}:3:10: use of undeclared SSA value name\n    return %b"
    )
