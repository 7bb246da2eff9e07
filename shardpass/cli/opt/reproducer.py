"""A failure in one file: the module, and in its head the command that repeats what was done to it.

The form is mlir-opt's: the pipeline stands among the external resources of the module's text, and
``--run-reproducer`` runs it. mlir-opt reads these files, and ours are read as its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shardpass.canon.mlir_string import quote, unquote
from shardpass.diagnostics import ShardingError

_RESOURCE: Final = "mlir_reproducer"
_SECTION = re.compile(
    rb"external_resources:\s*\{\s*mlir_reproducer:\s*\{(?P<entries>(?:[^\"{}]|\"(?:[^\"\\]|\\.)*\")*)"
    rb"\}\s*\},?\s*"
)
_ENTRY = re.compile(rb"(?P<key>\w+):\s*(?:\"(?P<text>(?:[^\"\\]|\\.)*)\"|(?P<word>\w+))")
_METADATA = re.compile(rb"^\{-#", re.MULTILINE)
#: Of a digest in a name, in base 16.
_DIGITS: Final = 16
_NO_METADATA = re.compile(rb"\{-#\s*#-\}\s*$")


@dataclass(frozen=True)
class Reproducer:
    """What was done to a module: ``pipeline`` as one text, and whether MLIR's verifier ran."""

    pipeline: str
    verify_each: bool = True


def read_reproducer(data: bytes, name: str) -> tuple[bytes, Reproducer]:
    """The module in ``data`` without its reproducer, and that.

    Raises:
      ShardingError: ``unreadable``, where there is none.
    """
    section = _SECTION.search(data)
    entries = {e["key"]: e for e in _ENTRY.finditer(section["entries"])} if section else {}
    pipeline = entries.get(b"pipeline")
    text = unquote(pipeline["text"].decode(errors="replace")) if pipeline else None
    if section is None or not text:
        raise ShardingError(
            "unreadable",
            f"{name} holds no reproducer",
            help=f"--run-reproducer wants the text of a module whose resources have {_RESOURCE}",
        )
    verify = entries.get(b"verify_each")
    module = data[: section.start()] + data[section.end() :]
    return (
        _NO_METADATA.sub(b"", module),
        Reproducer(text, not (verify and verify["word"] == b"false")),
    )


def with_reproducer(module: bytes, done: Reproducer, head: str) -> bytes:
    """The text of ``module`` with ``done`` in it, behind ``head`` as a comment."""
    verify = "true" if done.verify_each else "false"
    section = (
        f"  external_resources: {{\n    {_RESOURCE}: {{\n"
        f"      pipeline: {quote(done.pipeline)},\n"
        "      disable_threading: true,\n"
        f"      verify_each: {verify}\n    }}\n  }}"
    ).encode()
    module = f"// {head}\n".encode() + _SECTION.sub(b"", module).strip(b"\n") + b"\n"
    metadata = list(_METADATA.finditer(module))
    if metadata and not _NO_METADATA.search(module):
        at = metadata[-1].end()
        return module[:at] + b"\n" + section + b"," + module[at:]
    return _NO_METADATA.sub(b"", module).rstrip() + b"\n\n{-#\n" + section + b"\n#-}\n"


def keep_in_temporary_folder(
    name: str, suffix: str, done: bytes, content: Callable[[str], bytes]
) -> str:
    """Write a file that is named after the failure, so that the same one again makes no other.

    The file is the user's alone, and comes whole to its place. Who else may write to the folder
    gains nothing by knowing the name: a link there is replaced and not followed, and what the
    system will not replace, being another user's, is left alone for a name that nobody knows.

    Args:
      name: of the file that the module came from.
      suffix: what the name ends in.
      done: all that makes the failure what it is.
      content: what to write, for the path where it will be.

    Returns:
      The path.

    Raises:
      ShardingError: ``unwritable``, with the system's reason.
    """
    stem = re.sub(r"[^\w.-]", "", Path(name).stem)[:40] or "module"
    digest = hashlib.sha256(done).hexdigest()[:_DIGITS]
    try:
        folder = tempfile.gettempdir()
        path = os.path.join(folder, f"shardpass-{os.getuid()}-{stem}-{digest}{suffix}")
        own = _new_file(folder, stem, suffix, lambda _: content(path))
        try:
            os.replace(own, path)
        except OSError:
            os.unlink(own)
            return _new_file(folder, stem, suffix, content)
    except OSError as error:
        raise ShardingError(
            "unwritable",
            f"cannot write to the temporary folder: {(error.strerror or str(error)).lower()}",
        ) from error
    return path


def _new_file(folder: str, stem: str, suffix: str, content: Callable[[str], bytes]) -> str:
    """A file that nobody else can read, under a name that nobody has yet."""
    descriptor, path = tempfile.mkstemp(prefix=f"shardpass-{stem}-", suffix=suffix, dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content(path))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    return path


def command(*words: str) -> str:
    """A command as a shell reads it."""
    return shlex.join(("shardpass", "opt", *words))
