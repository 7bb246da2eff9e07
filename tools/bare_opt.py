"""jaxlib's own pass manager on a file, and nothing of ours around it: a yardstick for ``opt``.

    python tools/bare_opt.py FILE --canonicalize '--sdy-basic-propagate=keep-sharding-rules=true'

Takes passes and ``--split-input-file`` as ``shardpass opt`` does, and nothing else: no checks, no
help for the module, no messages but MLIR's. What it prints, mlir-opt would print with this jaxlib.
Options for diagnostics are no part of it: it ends with an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from jax.extend.mlir import ir, passmanager

from shardpass.mlir import native
from shardpass.mlir.context import make_context

_SPLIT = re.compile(r"^// -----.*$", re.MULTILINE)


def pipeline_of(flags: Sequence[str]) -> str:
    """``--a=x=1 --b`` -> ``builtin.module(a{x=1},func.func(b))``, each pass where it runs.

    Raises:
      ValueError: a flag is no pass of this jaxlib.
    """
    parts: list[str] = []
    for flag in flags:
        name, _, options = flag.lstrip("-").partition("=")
        where = native.anchor(name)
        if where is None:
            raise ValueError(f"no pass of this jaxlib: {flag}")
        written = f"{name}{{{options}}}" if options else name
        parts.append(written if where == native.MODULE else f"{where}({written})")
    return f"{native.MODULE}({','.join(parts)})"


def main(arguments: Sequence[str]) -> int:
    """Print what the passes make of each part of the file."""
    words = [re.sub("^--?", "--", word) for word in arguments]
    split = "--split-input-file" in words
    allow = "--allow-unregistered-dialect" in words
    known = ("--split-input-file", "--allow-unregistered-dialect")
    files = [word for word, raw in zip(words, arguments, strict=True) if not raw.startswith("-")]
    flags = [word for word in words if word.startswith("--") and word not in known]
    native.register()
    text = Path(files[0]).read_text(encoding="utf-8")
    printed: list[str] = []
    for part in _SPLIT.split(text) if split else [text]:
        context = make_context()
        context.allow_unregistered_dialects = allow
        with context:
            module = ir.Module.parse(part)
            passmanager.PassManager.parse(pipeline_of(flags)).run(module.operation)
            printed.append(str(module))
    print("\n// -----\n".join(printed), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
