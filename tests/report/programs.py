"""Programs that the tests compile, and HLO that no CPU compiler writes."""

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

MESH = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))


def sharded(shape: tuple[int, ...], *spec: Any, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    """An abstract array cut by ``spec``."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, PartitionSpec(*spec)))


def constrain(x: jax.Array, *spec: Any) -> jax.Array:
    return jax.lax.with_sharding_constraint(x, NamedSharding(MESH, PartitionSpec(*spec)))


def compiled_text(function: Callable[..., Any], *arguments: Any) -> str:
    return jax.jit(function).lower(*arguments).compile().as_text()


def without_trip_counts(hlo: str) -> str:
    """``hlo`` as a compiler would print it that has not counted its loops."""
    return re.sub(r'"known_trip_count":\{"n":"\d+"\}', '"other":{}', hlo)


ASYNC = """\
HloModule async, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%wrapped_reduce_scatter (p: f32[64,8]) -> f32[16,8] {
  %p = f32[64,8]{1,0} parameter(0)
  ROOT %rs = f32[16,8]{1,0} reduce-scatter(%p), dimensions={0}, to_apply=%add
}

ENTRY %main (x: f32[8,8], y: bf16[16]) -> f32[8,8] {
  %x = f32[8,8]{1,0:T(8,128)S(1)} parameter(0)
  %y = bf16[16]{0} parameter(1)
  %ar-start = f32[8,8]{1,0} all-reduce-start(%x), channel_id=1, to_apply=%add
  %ar-done = f32[8,8]{1,0} all-reduce-done(%ar-start)
  %ag-start = (f32[8,8]{1,0:T(8,128)}, f32[32,8]{1,0:T(8,128)}) all-gather-start(%ar-done), \
dimensions={0}
  %ag-done = f32[32,8]{1,0} all-gather-done(%ag-start)
  %cp-start = (f32[8,8]{1,0}, f32[8,8]{1,0}, u32[], /*index=3*/u32[]) \
collective-permute-start(%ar-done), source_target_pairs={{0,1},{1,0}}
  %cp-done = f32[8,8]{1,0} collective-permute-done(%cp-start)
  %big = f32[64,8]{1,0} broadcast(%x), dimensions={}
  %rs-start = ((f32[64,8]{1,0}), f32[16,8]{1,0}, s32[]) async-start(%big), \
calls=%wrapped_reduce_scatter
  %rs-update = ((f32[64,8]{1,0}), f32[16,8]{1,0}, s32[]) async-update(%rs-start), \
calls=%wrapped_reduce_scatter
  %rs-done = f32[16,8]{1,0} async-done(%rs-update), calls=%wrapped_reduce_scatter
  %two-start = ((f32[8,8]{1,0}, bf16[16]{0}), (f32[32,8]{1,0}, bf16[64]{0})) \
all-gather-start(f32[8,8]{1,0} %x, bf16[16]{0} %y), dimensions={0}
  %two-done = (f32[32,8]{1,0}, bf16[64]{0}) all-gather-done(%two-start)
  ROOT %out = f32[8,8]{1,0} copy(%cp-done)
}
"""

LOOP = """\
HloModule loop

body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  step = s32[] constant({step})
  next = s32[] add(i, step)
  v = f32[4]{{0}} get-tuple-element(s), index=1
  g = f32[4]{{0}} all-reduce(v), to_apply=add
  ROOT out = (s32[], f32[4]) tuple(next, g)
}}

cond {{
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({bound})
  ROOT less = pred[] compare({operands}), direction={direction}
}}

ENTRY main {{
  x = f32[4]{{0}} parameter(0)
  first = s32[] constant({first})
  start = s32[] copy(first)
  state = (s32[], f32[4]) tuple(start, x)
  loop = (s32[], f32[4]) while(state), condition=cond, body=body
  ROOT r = f32[4]{{0}} get-tuple-element(loop), index=1
}}
""".replace("body {\n", "body {{\n", 1)


def counted_loop(
    first: int, bound: int, step: int, direction: str = "LT", operands: str = "i, n"
) -> str:
    """A loop whose length only its condition tells; the body holds an all-reduce of 16 bytes."""
    return LOOP.format(first=first, bound=bound, step=step, direction=direction, operands=operands)
