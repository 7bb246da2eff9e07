"""Programs that call LAPACK, run by a process that has not lowered one itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tests.runtime.conftest import MESH, annotate
from tests.runtime.fresh import run_python

N = 16


def positive(a: jax.Array) -> jax.Array:
    return a @ a.T + jnp.eye(N)


PROGRAMS: dict[str, Callable[[jax.Array], object]] = {
    "potrf": lambda a: jnp.linalg.cholesky(positive(a)),
    "gesdd": lambda a: jnp.linalg.svd(a, compute_uv=False),
    "syevd": lambda a: jnp.linalg.eigh(a + a.T)[0],
    "geqrf": lambda a: jnp.abs(jnp.linalg.qr(a)[1]),
    "trsm": lambda a: jax.scipy.linalg.solve_triangular(positive(a), a, lower=True),
    "getrf": lambda a: jnp.linalg.solve(positive(a), a),
    "gehrd": lambda a: jnp.abs(jax.lax.linalg.hessenberg(a)[0]),
    "gees": lambda a: jnp.diagonal(jax.scipy.linalg.schur(positive(a))[0]).sum(),
    "gtsv": lambda a: jax.lax.linalg.tridiagonal_solve(a[0] / 9, a[1] + 10, a[2] / 9, a),
}


def lowered(program: Callable[[jax.Array], object]) -> str:
    text = jax.jit(program).lower(jax.ShapeDtypeStruct((N, N), jnp.float32)).as_text()
    return text.replace("{\n", f"{{\n  sdy.mesh @mesh = {MESH}\n", 1)


def test_each_kernel_in_a_process_that_lowered_none(tmp_path: Path):
    """A segmentation fault where the kernels have not been told where LAPACK is."""
    cut = 'sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>'
    for name, program in PROGRAMS.items():
        text = annotate(lowered(program), {"arg0": cut})
        assert f"lapack_s{name}_ffi" in text
        (tmp_path / f"{name}.mlir").write_text(text)
    told = run_python(
        f"""
        import pathlib
        import shardpass
        for path in sorted(pathlib.Path({str(tmp_path)!r}).iterdir()):
            print(path.stem, shardpass.check(path).ok)
        """
    )
    assert told.splitlines() == [f"{name} True" for name in sorted(PROGRAMS)]


@pytest.mark.parametrize("target", ["lapack_sno_such_routine_ffi", "cusolver_potrf_ffi"])
def test_a_kernel_that_nobody_registered_is_an_error(target: str):
    told = run_python(
        f"""
        import shardpass
        text = '''func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
          %0 = stablehlo.custom_call @{target}(%a) : (tensor<8xf32>) -> tensor<8xf32>
          return %0 : tensor<8xf32>
        }}'''
        try:
            shardpass.check(shardpass.load(text))
        except shardpass.ShardingError as error:
            print(error.slug, "{target}" in str(error))
        """
    )
    assert told.split() == ["compile-failed", "True"]
