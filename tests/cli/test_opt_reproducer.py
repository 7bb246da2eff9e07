"""Failures in one file: what is written reads as the same again, here and in MLIR."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpass.cli.opt.reproducer import Reproducer, command, read_reproducer, with_reproducer
from shardpass.diagnostics import ShardingError
from shardpass.mlir import load

MODULE = b"func.func @main() {\n  return\n}\n"
#: The module's own metadata, as jax.export leaves constants.
WITH_RESOURCES = (
    b"func.func @main() -> tensor<1xf32> {\n"
    b"  %0 = stablehlo.constant dense_resource<one> : tensor<1xf32>\n"
    b"  return %0 : tensor<1xf32>\n}\n\n"
    b'{-#\n  dialect_resources: {\n    builtin: {\n      one: "0x040000000000803F"\n'
    b"    }\n  }\n#-}\n"
)
#: As mlir-opt writes it.
OF_MLIR_OPT = b"""\
module {
}

{-#
  external_resources: {
    mlir_reproducer: {
      pipeline: "builtin.module(func.func(cse,canonicalize{  max-iterations=1 top-down=true}))",
      disable_threading: true,
      verify_each: true
    }
  }
#-}
"""


def printed(module: bytes) -> str:
    # jaxlib gives a resource that it has seen before another name.
    return re.sub(r"\bone(_\d+)?\b", "one", load(module).text())


@pytest.mark.parametrize("module", [MODULE, WITH_RESOURCES])
@pytest.mark.parametrize(
    "done",
    [
        Reproducer("builtin.module(cse)"),
        Reproducer("builtin.module(a{b=\"c d\" e='{'},f)", verify_each=False),
        Reproducer('builtin.module(a{b="}#-}\\" é"})'),
    ],
)
def test_what_is_written_is_read(module: bytes, done: Reproducer) -> None:
    text = with_reproducer(module, done, "To repeat it: x")
    assert text.startswith(b"// To repeat it: x\nfunc.func")
    again, found = read_reproducer(text, "f")
    assert found == done
    assert printed(again) == printed(module)
    # It is written anew without growing.
    assert with_reproducer(text, done, "x").count(b"mlir_reproducer") == 1


@given(st.text("ab{}\"'\\#- \n,:", max_size=20), st.booleans())
def test_any_pipeline(pipeline: str, verify_each: bool) -> None:
    done = Reproducer(f"builtin.module({pipeline})", verify_each)
    for module in (MODULE, WITH_RESOURCES):
        again, found = read_reproducer(with_reproducer(module, done, "x"), "f")
        assert found == done
        assert again.split() == [b"//", b"x", *module.split()]


def test_mlir_opts_own_are_read() -> None:
    module, found = read_reproducer(OF_MLIR_OPT, "f")
    assert module.split() == [b"module", b"{", b"}"]
    assert found == Reproducer(
        "builtin.module(func.func(cse,canonicalize{  max-iterations=1 top-down=true}))"
    )


@pytest.mark.parametrize("text", [MODULE, WITH_RESOURCES, b"", b"{-# external_resources: {} #-}"])
def test_a_file_without_one(text: bytes) -> None:
    with pytest.raises(ShardingError, match=r"f\.mlir holds no reproducer"):
        read_reproducer(text, "f.mlir")


def test_a_command_is_one_for_a_shell() -> None:
    assert command("a b.mlir", "-x") == "shardpass opt 'a b.mlir' -x"
