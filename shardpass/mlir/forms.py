"""The forms that a module has in a file, told apart by content; and what else a file may be.

What a file is called says nothing: dumps are called ``.txt`` and ``.pb``, exports as their writer
liked. Each form has a mark of its own:

* MLIR bytecode begins with a magic number; StableHLO's portable artifacts are bytecode whose
  producer is StableHLO itself;
* a serialized ``jax.export.Exported`` is a flatbuffer, with bytecode in one of its fields;
* an HLO proto is a protobuf whose fields are those of ``HloModuleProto``, alone or inside an
  ``HloProto`` or a snapshot;
* HLO text begins with ``HloModule``; any other text is taken for MLIR.

gzip, in which XLA can dump its protos, is unpacked on the way in and never on the way out.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from typing import Final, Literal, TypeAlias

from shardpass.diagnostics import ShardingError, did_you_mean
from shardpass.mlir import bytecode, exported_file
from shardpass.mlir.files import is_bytecode, is_portable_artifact

Form: TypeAlias = Literal["text", "bytecode", "portable", "exported", "hlo", "hlo-proto"]
#: A form to write, as people ask for it; see :func:`asked`.
Emit: TypeAlias = str

#: Each form, and what messages call it.
FORMS: Final[dict[Form, str]] = {
    "text": "MLIR text",
    "bytecode": "MLIR bytecode",
    "portable": "a StableHLO portable artifact",
    "exported": "a serialized jax.export.Exported",
    "hlo": "HLO text",
    "hlo-proto": "an HLO proto",
}

#: What a name ends in -> the form that is written to it, where nothing else is said.
_SUFFIXES: Final[dict[str, Form]] = {
    ".mlir": "text",
    ".mlirbc": "bytecode",
    ".bc": "bytecode",
    ".hlo": "hlo",
    ".hlo.pb": "hlo-proto",
}

_GZIP: Final = b"\x1f\x8b"
#: HLO text as XLA's own lexer reads it: comments may stand in front. Nothing of those is tried
#: twice, since there may be thousands of empty lines.
_HLO_TEXT = re.compile(rb"(?:\xef\xbb\xbf)?(?>\s+|//[^\n]*|/\*.*?\*/)*+HloModule\b", re.DOTALL)
#: The keys of fields 1 and 2, one of which is the first of every HLO proto.
_PROTO_STARTS: Final = (b"\x0a", b"\x12")
_VERSION = re.compile(r"\d+\.\d+\.\d+")

#: Other files that people keep beside modules: how they begin, and what they are.
_OTHERS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x28\xb5\x2f\xfd", "a file compressed with zstd"),
    (b"\xfd7zXZ\x00", "a file compressed with xz"),
    (b"BZh", "a file compressed with bzip2"),
    (b"PK\x03\x04", "a zip archive (an .npz, a PyTorch checkpoint)"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x7fELF", "a program or a shared library"),
    (b"%PDF-", "a PDF"),
    (b"\x89PNG", "a picture"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05]")


def form_of(data: bytes) -> Form:
    """The form of ``data``; ``text`` where it has the mark of no other.

    A form is told by its mark alone: what is cut short or damaged behind it is still that form.
    """
    if is_portable_artifact(data):
        return "portable"
    if is_bytecode(data):
        return "bytecode"
    if _HLO_TEXT.match(data):
        return "hlo"
    if exported_file.is_exported(data):
        return "exported"
    if data[:1] in _PROTO_STARTS and _is_hlo_proto(data):
        return "hlo-proto"
    return "text"


def _is_hlo_proto(data: bytes) -> bool:
    # The reader of protos comes with the whole object model: text does not wait for that.
    from shardpass.mlir.hlo_proto import begins_as_hlo_proto, is_hlo_proto

    return is_hlo_proto(data) or begins_as_hlo_proto(data)


def unpacked(data: bytes, name: str) -> bytes:
    """``data``, or what was compressed into it with gzip.

    Raises:
      ShardingError: ``unreadable`` for gzip that is cut short or damaged.
    """
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ShardingError(
            "unreadable", f"{name} is compressed with gzip, and cannot be unpacked: {error}"
        ) from error


def looks_like(data: bytes) -> str | None:
    """What ``data`` is, of the files that are often taken for a module; ``None`` if nobody knows.

    For errors: the mark of a module is not looked for.
    """
    for mark, what in _OTHERS:
        if data.startswith(mark):
            return what
    if _PICKLE.match(data):
        return "a Python pickle"
    if data[8:10] == b'{"' and 1 < int.from_bytes(data[:8], "little") < 1 << 30:
        return "a safetensors file"
    if bytecode.MAGIC.startswith(data[:4]):
        return "the beginning of MLIR bytecode"
    return None


def form_for(path: str | os.PathLike[str], read_as: Form | None) -> Form:
    """The form to write to ``path`` where none is asked for.

    What the name ends in decides; where that says nothing, an ``Exported`` stays one, and anything
    else is written as text.
    """
    name = os.fspath(path)
    ending = max((s for s in _SUFFIXES if name.endswith(s)), key=len, default=None)
    if ending is not None:
        return _SUFFIXES[ending]
    return "exported" if read_as == "exported" else "text"


def asked(emit: str) -> tuple[Form, str | None]:
    """A form as people ask for it, ``portable=1.9.0`` with the version of StableHLO.

    Raises:
      ShardingError: ``bad-option``.
    """
    name, equals, version = str(emit).partition("=")
    form: Form | None = next((form for form in FORMS if form == name), None)
    if form is None:
        raise ShardingError(
            "bad-option",
            f"a module is written as {', '.join(FORMS)}, not as {emit!r}",
            help=did_you_mean(name, list(FORMS)),
        )
    if not equals:
        return form, None
    if form != "portable" or not _VERSION.fullmatch(version):
        raise ShardingError(
            "bad-option",
            f"{emit!r} is no form of a module",
            help="a version goes with portable artifacts: portable=1.9.0",
        )
    return form, version
