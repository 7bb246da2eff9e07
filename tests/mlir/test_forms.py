"""Which form a file is in, told by its content; which form is written; and what is no module."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import export

from shardpass.cli import options
from shardpass.compat import hlo_import
from shardpass.diagnostics import ShardingError
from shardpass.mlir import FORMS, Module, load, parse, save
from shardpass.mlir.forms import asked, form_for, form_of, looks_like
from tests.mlir.conftest import SHAPES, step

HLO = """\
// A comment, as people write them.
HloModule step, entry_computation_layout={(f32[8,4]{1,0}, f32[2,8]{1,0})->f32[2,4]{1,0}}

ENTRY main {
  w = f32[8,4]{1,0} parameter(0), metadata={op_name="params['w']"}
  x = f32[2,8]{1,0} parameter(1), metadata={op_name="x"}
  d = f32[2,4]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[2,4]{1,0} tanh(d)
}
"""


@pytest.fixture
def forms(module: Module, artifact: bytes) -> dict[str, bytes]:
    """One program in every form."""
    return {
        "text": module.text().encode(),
        "bytecode": module.bytecode(),
        "portable": artifact,
        "exported": bytes(export.export(jax.jit(step))(*SHAPES).serialize()),
        "hlo": HLO.encode(),
        "hlo-proto": hlo_import.proto_of_text(HLO),
    }


def refused(source: Any, name: str = "file") -> ShardingError:
    with pytest.raises(ShardingError) as caught:
        load(source, name=name)
    assert caught.value.slug == "unreadable"
    return caught.value


def test_each_form_is_told_by_its_content(forms: dict[str, bytes], tmp_path: Path) -> None:
    assert list(forms) == list(FORMS)
    for form, content in forms.items():
        assert form_of(content) == form
        packed = tmp_path / "packed"
        packed.write_bytes(gzip.compress(content))
        for source in (content, packed):
            module = load(source)
            assert module.form == form
            assert [value.path for value in module.arguments] == ["params.w", "x"]
            assert [value.shape for value in module.results] == [(2, 4)]


def test_what_is_cut_short_is_still_of_its_form(forms: dict[str, bytes]) -> None:
    """From the first bytes on that only this form has; messages name it."""
    for form, least, said in (
        ("bytecode", 4, "file is MLIR bytecode that does not add up: "),
        ("portable", 16, "file is a StableHLO portable artifact that does not add up: "),
        ("exported", 100, "file is a serialized jax.export.Exported that is cut short: "),
        ("hlo-proto", 24, "file is HLO that XLA cannot read: "),
    ):
        content = forms[form]
        # Behind the program, an Exported has what that does without; a proto has other fields.
        size = len(content) // 2 if form == "hlo-proto" else len(content)
        size = content.index(forms["portable"][-40:]) if form == "exported" else size
        for end in range(least, size, max(1, size // 60)):
            assert form_of(content[:end]) == form, (form, end)
            message = refused(content[:end]).diagnostic.message
            assert message.startswith(said), (form, end, message)


def test_protos_around_protos_that_are_cut_short(forms: dict[str, bytes]) -> None:
    size = len(forms["hlo-proto"])
    head = b"\x0a" + bytes([size & 0x7F | 0x80, size >> 7])
    for end in (60, size // 2, size - 1):
        content = head + forms["hlo-proto"][:end]
        assert form_of(content) == "hlo-proto"
        assert f"a field of {size} bytes, and {end} are left" in str(refused(content))


def test_a_proto_with_a_broken_middle(forms: dict[str, bytes]) -> None:
    """It is told by its beginning, and what is wrong is said."""
    content = forms["hlo-proto"]
    place = content.index(b"main", 12)
    other = content[:place] + b"\xff\xff\xff\xff" + content[place + 4 :]
    assert form_of(other) == "hlo-proto"
    assert str(refused(other)).startswith("file is HLO that XLA cannot read: ")


def test_memory_has_no_form(module: Module) -> None:
    assert module.form is None
    assert load(module.ir).form is None
    assert module.clone().form is None


def test_every_form_is_written_and_read_again(forms: dict[str, bytes], tmp_path: Path) -> None:
    module = load(forms["exported"])
    texts: dict[str, str] = {}
    for form in FORMS:
        save(module, tmp_path / "again", emit=form)
        again = load(tmp_path / "again")
        assert again.form == form
        texts[form] = again.text(debug_info=False)
    exact = {texts[form] for form in ("text", "bytecode", "portable", "exported")}
    assert len(exact) == 1
    assert texts["hlo"] == texts["hlo-proto"]


@pytest.mark.parametrize(
    ("name", "read_as", "form"),
    [
        ("a.mlir", "exported", "text"),
        ("a.mlirbc", "exported", "bytecode"),
        ("a.bc", "text", "bytecode"),
        ("a.hlo", "text", "hlo"),
        ("a.hlo.pb", "text", "hlo-proto"),
        ("a.pb", "hlo-proto", "text"),
        ("a.exported", "exported", "exported"),
        ("a", "exported", "exported"),
        ("/dev/stdout", "exported", "exported"),
        ("a", "portable", "text"),
        ("a.exported", "text", "text"),
        ("a", None, "text"),
    ],
)
def test_the_form_to_write(name: str, read_as: Any, form: str) -> None:
    assert form_for(name, read_as) == form
    assert form_for(Path(name), read_as) == form


def test_forms_as_people_ask_for_them() -> None:
    assert asked("hlo-proto") == ("hlo-proto", None)
    assert asked("portable=1.9.0") == ("portable", "1.9.0")
    for wrong, said in (
        ("hlo=1.9.0", "portable=1.9.0"),
        ("portable=", "portable=1.9.0"),
        ("portable=new", "portable=1.9.0"),
        ("exportd", 'did you mean "exported"?'),
    ):
        with pytest.raises(ShardingError) as caught:
            asked(wrong)
        assert caught.value.slug == "bad-option"
        assert said in str(caught.value)


def test_the_command_line_knows_the_same_forms() -> None:
    assert tuple(FORMS) == options.FORMS


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (pickle.dumps({"w": np.ones(3)}), "a Python pickle"),
        (
            b"\x40\x00\x00\x00\x00\x00\x00\x00" + b'{"w":{"dtype":"F32"}}' + b"\xff" * 64,
            "a safetensors file",
        ),
        (b"PK\x03\x04\x14\x00\xff\xfe", "a zip archive (an .npz, a PyTorch checkpoint)"),
        (b"\x93NUMPY\x01\x00v\x00", "a NumPy array"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "a file compressed with zstd"),
        (b"\xfd7zXZ\x00\x00", "a file compressed with xz"),
        (b"BZh91AY&SY\xff", "a file compressed with bzip2"),
        (b"\x7fELF\x02\x01\x01\xff", "a program or a shared library"),
        (b"ML\xef", "the beginning of MLIR bytecode"),
    ],
)
def test_files_that_are_taken_for_modules(content: bytes, what: str) -> None:
    assert looks_like(content) == what
    error = refused(content, "step.mlir")
    assert str(error).startswith(f"step.mlir is {what}, and no module")
    assert "a serialized" not in str(error.diagnostic.help)
    assert "StableHLO portable artifact, serialized jax.export.Exported" in str(error)


def test_gzip_that_is_damaged() -> None:
    packed = gzip.compress(HLO.encode() * 20)
    for content in (packed[:-20], packed[:40] + b"\xff\xff\xff" + packed[43:], b"\x1f\x8b"):
        assert str(refused(content)).startswith("file is compressed with gzip, and cannot be")
    assert str(refused(gzip.compress(b"  \n"))) == "file is empty"


def test_folders(tmp_path: Path) -> None:
    for held, what in (
        ("saved_model.pb", "a TensorFlow SavedModel, a folder of graphs, and no module"),
        ("_CHECKPOINT_METADATA", "an Orbax checkpoint, a folder of arrays, and no module"),
    ):
        folder = tmp_path / held.strip("_")[:5]
        folder.mkdir()
        (folder / held).write_bytes(b"")
        assert str(refused(folder)) == f"{folder} is {what}"
    assert "is a directory" in str(refused(tmp_path))


def test_text_is_taken_for_mlir() -> None:
    """Also text that speaks of HLO, and what begins as a proto does."""
    spaced = "\n" * 50_000 + "// HloModule\n" * 1000 + "func.func @a() { return }"
    for text in ("func.func @HloModule() { return }", spaced, "\x12", "/* HloModule"):
        assert form_of(text.encode()) == "text"


def test_dialects_that_nobody_registered() -> None:
    """Where they are allowed, and not by default."""
    text = b'func.func @main() { "acme.op"() : () -> () return }'
    module = parse(text, "a.mlir", allow_unregistered=True)
    assert '"acme.op"()' in module.text()
    again = parse(module.bytecode(), "a.mlirbc", allow_unregistered=True)
    assert '"acme.op"()' in again.text()
    with pytest.raises(ShardingError, match="unregistered"):
        parse(text, "a.mlir")


def test_bytes_of_any_kind_are_content(forms: dict[str, bytes]) -> None:
    for kind in (bytearray, memoryview):
        assert load(kind(forms["exported"])).form == "exported"


def test_a_form_that_is_no_text_is_refused() -> None:
    for emit in (None, 3):
        with pytest.raises(ShardingError) as caught:
            asked(emit)  # pyright: ignore[reportArgumentType]
        assert caught.value.diagnostic.slug == "bad-option"
