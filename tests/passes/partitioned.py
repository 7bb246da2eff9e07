"""Programs to be taken apart, and what becomes of each; run in children, which may die."""

from __future__ import annotations

import difflib
import importlib.util
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.mlir import ir
from jax.sharding import PartitionSpec as P

from shardpass.canon import MeshShape
from shardpass.diagnostics import Severity, ShardingError
from shardpass.mlir import (
    SDY_SHARDING,
    Module,
    argument_attributes,
    declare_mesh,
    load,
    mesh_ops,
    operations,
    result_attributes,
    set_argument_attributes,
    set_result_attributes,
    with_entry,
)
from shardpass.passes import run_pipeline
from shardpass.report.collectives import read_collectives
from shardpass.runtime.compare import error_of
from shardpass.runtime.compile import Executable, compile_module
from shardpass.runtime.inputs import input_source

MESH = '<["x"=2, "y"=4]>'
#: A mesh whose devices are in no order at all.
SHUFFLED = '<["x"=2, "y"=4], device_ids=[3, 1, 2, 0, 7, 6, 5, 4]>'
#: Another result than this far from that of one device is a wrong one.
TOLERANCE = 1e-5

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A function of arrays and where its arguments lie.

    Attributes:
      function: of as many arrays as there are arguments.
      arguments: what Shardy writes between the brackets of each, and its shape; ``i`` in front of
        the text for whole numbers below 3.
      results: where every result is to lie, or as propagation has it.
    """

    function: Callable[..., Any]
    arguments: Sequence[tuple[str, Shape]]
    results: str | None = None

    def inputs(self) -> list[np.ndarray]:
        """Arrays of which no two blocks are alike."""
        numbers = np.random.default_rng(0)
        return [
            np.asarray(numbers.integers(0, 3, shape), np.int32)
            if text.startswith("i")
            else numbers.uniform(-2, 2, shape).astype(np.float32)
            for text, shape in self.arguments
        ]

    def module(self, mesh: str = MESH) -> Module:
        """The program as JAX lowers it for one device, its arguments annotated."""
        function = self.function
        lowered = jax.jit(lambda *a: function(*a), keep_unused=True).lower(*self.inputs())
        module = load(lowered.as_text())
        if not mesh_ops(module.root):
            declare_mesh(module.root, "mesh", MeshShape.parse(mesh))
        texts = [text.removeprefix("i") for text, _ in self.arguments]
        main = module.main
        set_argument_attributes(main, _annotated(argument_attributes(main), texts))
        if self.results:
            attributes = result_attributes(main)
            set_result_attributes(main, _annotated(attributes, [self.results] * len(attributes)))
        return module


def _annotated(attributes: list[ir.DictAttr], texts: Sequence[str]) -> list[ir.DictAttr]:
    return [
        with_entry(
            entries,
            SDY_SHARDING,
            ir.Attribute.parse(f"#sdy.sharding<@mesh, [{text}]>", entries.context),
        )
        for entries, text in zip(attributes, texts, strict=True)
    ]


X, Y, XY, YX, WHOLE = '{"x"}', '{"y"}', '{"x", "y"}', '{"y", "x"}', "{}"
MAJOR, MINOR = '{"y":(1)2}', '{"y":(2)2}'


def _at(*dims: str) -> str:
    return ", ".join(dims)


def _convolution(a: jax.Array, kernel: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(
        a, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _pool(a: jax.Array) -> jax.Array:
    return lax.reduce_window(a, np.float32(0), lax.add, (3, 1), (1, 1), "SAME")


def _in_a_region(a: jax.Array, b: jax.Array) -> jax.Array:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    product = jax.shard_map(
        lambda u, v: lax.psum(u @ v, "y"),
        mesh=mesh,
        in_specs=(P(None, "y"), P("y", None)),
        out_specs=P(None, None),
        axis_names={"y"},
    )
    return product(a, b) * 2


@jax.jit
def _called(a: jax.Array) -> jax.Array:
    return jnp.tanh(a @ a.T)


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jax.nn.sigmoid(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    return jnp.einsum("bhqk,bkhd->bqhd", scores, v)


_HEADS = (_at(X, WHOLE, Y, WHOLE), (4, 8, 4, 8))

#: Programs by what they are about.
PROGRAMS: Mapping[str, Program] = {
    "elementwise": Program(
        lambda a, b: jnp.sin(a) * b + 1, [(_at(X, Y), (8, 16)), (_at(X, Y), (8, 16))]
    ),
    "elementwise, one cut": Program(
        lambda a, b: jnp.sin(a) * b, [(_at(X, WHOLE), (8, 16)), (_at(WHOLE, X), (8, 16))]
    ),
    "product": Program(lambda a, b: a @ b, [(_at(X, Y), (16, 32)), (_at(Y, WHOLE), (32, 64))]),
    "product, no sum cut": Program(
        lambda a, b: a @ b, [(_at(X, WHOLE), (16, 32)), (_at(WHOLE, Y), (32, 64))]
    ),
    "product, scattered": Program(
        lambda a, b: a @ b, [(_at(WHOLE, Y), (8, 8)), (_at(Y, WHOLE), (8, 8))], _at(Y, WHOLE)
    ),
    "batched product": Program(
        lambda a, b: jnp.einsum("bij,bjk->bik", a, b),
        [(_at(X, WHOLE, Y), (8, 4, 8)), (_at(X, Y, WHOLE), (8, 8, 16))],
    ),
    "attention": Program(_attention, [_HEADS, _HEADS, _HEADS]),
    "rows of a table": Program(
        lambda table, rows: table[rows], [(_at(X, WHOLE), (32, 16)), ("i{}", (4,))]
    ),
    "columns of a table": Program(
        lambda table, rows: table[rows], [(_at(WHOLE, X), (32, 16)), ("i" + Y, (4,))]
    ),
    "sums": Program(lambda a: (a.sum(0), a.sum(1), a.sum()), [(_at(X, Y), (8, 16))]),
    "maximum": Program(lambda a: (a.max(0), a.min(0)), [(_at(X, Y), (8, 16))]),
    "products of columns": Program(lambda a: a.prod(0), [(_at(X, Y), (8, 16))]),
    "all": Program(lambda a: (a > 0).all(0), [(_at(X, Y), (8, 16))]),
    "argmax": Program(lambda a: jnp.argmax(a, 0), [(_at(X, WHOLE), (8, 16))]),
    "transpose": Program(lambda a: a.T, [(_at(X, Y), (8, 16))]),
    "other dimension": Program(lambda a: a * 2, [(_at(Y, WHOLE), (8, 8))], _at(WHOLE, Y)),
    "other order of axes": Program(lambda a: a * 2, [(_at(XY, WHOLE), (8, 8))], _at(YX, WHOLE)),
    "axes change places": Program(lambda a: a * 2, [(_at(Y, X), (8, 8))], _at(X, Y)),
    "gathered": Program(lambda a: a * 2, [(_at(Y, X), (8, 8))], _at(WHOLE, WHOLE)),
    "cut": Program(lambda a: a * 2, [(_at(WHOLE, WHOLE), (8, 8))], _at(Y, X)),
    "parts of an axis": Program(
        lambda a, b: a + b, [(_at(MINOR, WHOLE), (8, 16)), (_at(WHOLE, MAJOR), (8, 16))]
    ),
    "split dimension": Program(lambda a: a.reshape(2, 6, 8), [(_at(WHOLE, X), (2, 48))]),
    "merged dimensions": Program(lambda a: a.reshape(32), [(_at(X, Y), (4, 8))]),
    "numbered rows": Program(
        lambda a: a * lax.broadcasted_iota(np.float32, (8, 16), 0), [(_at(Y, X), (8, 16))]
    ),
    "constant": Program(
        lambda a: a + np.arange(128, dtype=np.float32).reshape(8, 16), [(_at(X, Y), (8, 16))]
    ),
    "slice": Program(lambda a: a[2:6], [(_at(X, WHOLE), (8, 16))]),
    "slice in steps": Program(lambda a: a[::2], [(_at(X, WHOLE), (8, 16))]),
    "reversed": Program(lambda a: a[::-1], [(_at(X, Y), (8, 16))]),
    "joined": Program(
        lambda a, b: jnp.concatenate([a, b]), [(_at(X, WHOLE), (8, 16)), (_at(X, WHOLE), (8, 16))]
    ),
    "padded": Program(lambda a: jnp.pad(a, ((4, 4), (0, 0))), [(_at(X, WHOLE), (8, 16))]),
    "padded twice": Program(lambda a: jnp.pad(a, ((4, 4), (8, 8))), [(_at(X, Y), (8, 16))]),
    "moved by a pad": Program(
        lambda a: lax.pad(a, np.float32(1), ((-2, 2, 0), (0, 0, 0))), [(_at(X, WHOLE), (8, 16))]
    ),
    "window": Program(_pool, [(_at(Y, X), (8, 16))]),
    "running sum": Program(lambda a: jnp.cumsum(a, 0), [(_at(X, WHOLE), (8, 16))]),
    "convolution": Program(
        _convolution, [(_at(WHOLE, X, Y, WHOLE), (4, 8, 8, 8)), (_at(*["{}"] * 4), (3, 3, 8, 8))]
    ),
    "convolution, channels": Program(
        _convolution,
        [(_at(X, WHOLE, WHOLE, Y), (4, 8, 8, 8)), (_at(WHOLE, WHOLE, Y, WHOLE), (3, 3, 8, 8))],
    ),
    "scatter": Program(
        lambda a, i, u: a.at[i].add(u),
        [(_at(X, WHOLE), (8, 16)), ("i{}", (4,)), (_at(WHOLE, WHOLE), (4, 16))],
    ),
    "dynamic slice": Program(
        lambda a, i: lax.dynamic_slice(a, (i, i), (4, 16)), [(_at(X, WHOLE), (8, 16)), ("i", ())]
    ),
    "dynamic update": Program(
        lambda a, u, i: lax.dynamic_update_slice(a, u, (i, i)),
        [(_at(X, Y), (8, 16)), (_at(WHOLE, Y), (4, 16)), ("i", ())],
    ),
    "sort": Program(lambda a: jnp.sort(a, 0), [(_at(X, WHOLE), (8, 16))]),
    "top k": Program(lambda a: lax.top_k(a, 4), [(_at(X, Y), (8, 16))]),
    "CHLO": Program(lambda a: lax.erf(a) + jnp.square(a), [(_at(X, Y), (8, 16))]),
    "drawn bits": Program(
        lambda a: (
            a
            + lax.rng_bit_generator(np.array([1, 2, 3, 4], np.uint32), (8, 16), dtype=np.uint32)[
                1
            ].astype(np.float32)
        ),
        [(_at(X, WHOLE), (8, 16))],
    ),
    "drawn numbers": Program(
        lambda a: a + jax.random.uniform(jax.random.key(3), (8, 16)), [(_at(X, Y), (8, 16))]
    ),
    "loop": Program(
        lambda a: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * 2 + c.sum(0), a),
        [(_at(X, Y), (8, 16))],
    ),
    "scan": Program(
        lambda a, b: lax.scan(lambda c, x: (c * x + 1, c.sum()), b, a),
        [(_at(WHOLE, X, Y), (4, 8, 8)), (_at(X, Y), (8, 8))],
    ),
    "branches": Program(
        lambda a, p: lax.cond(p > 0, lambda z: z @ z.T, lambda z: (z * 2) @ z.T, a),
        [(_at(X, Y), (8, 16)), ("i", ())],
    ),
    "calls": Program(lambda a: _called(_called(a)), [(_at(X, Y), (8, 8))]),
    "manual region": Program(_in_a_region, [(_at(X, Y), (8, 16)), (_at(Y, WHOLE), (16, 8))]),
    "factorization, batch cut": Program(
        lambda a: jnp.linalg.cholesky(a @ a.transpose(0, 2, 1) + 8 * jnp.eye(8)),
        [(_at(X, WHOLE, WHOLE), (4, 8, 8))],
    ),
    "factorization, matrix cut": Program(
        lambda a: jnp.linalg.cholesky(a @ a.transpose(0, 2, 1) + 8 * jnp.eye(8)),
        [(_at(WHOLE, X, WHOLE), (4, 8, 8))],
    ),
    "uneven": Program(lambda a: jnp.concatenate([a, a[:2]]) * 2, [(_at(Y, WHOLE), (8, 16))]),
}

#: StableHLO's collectives and Shardy's, by XLA's names.
_KINDS = {
    "all_gather": "all-gather",
    "all_reduce": "all-reduce",
    "all_to_all": "all-to-all",
    "collective_permute": "collective-permute",
    "reduce_scatter": "reduce-scatter",
}


def collectives(module: Module) -> dict[str, int]:
    """Kind -> how many such ops stand in a module; what needs no traffic is left out."""
    names = (op.operation.name.partition(".")[2] for op in operations(module.root))
    return dict(Counter(_KINDS[name] for name in names if name in _KINDS))


def compiled_collectives(executable: Executable) -> dict[str, int]:
    """Kind -> how many such instructions a compiled program holds."""
    found = read_collectives(executable.hlo_text)
    return {row.kind: row.instructions for row in found.rows}


def error(program: Program, executable: Executable) -> float:
    """How far the results are from those of one device, relative to these."""
    inputs = program.inputs()
    blocks = executable.execute([executable.place(i, a) for i, a in enumerate(inputs)])
    function = program.function
    whole = jax.tree.leaves(jax.jit(lambda *a: function(*a))(*inputs))
    return max(
        error_of(np.asarray(reference), layout, [np.asarray(block) for block in parts])
        for reference, layout, parts in zip(whole, executable.result_layouts, blocks, strict=True)
    )


def outcome(program: Program, mesh: str = MESH) -> str:
    """``right``, or the slugs of what was refused; anything else is a fault.

    The program is partitioned, and wrapped; the wrapped one is compiled, its collectives are held
    against those that stand in the per-device program, and its numbers against those of one device.
    """
    propagated = run_pipeline(program.module(mesh), "sp-propagate").module
    try:
        local = run_pipeline(propagated, "sp-partition").module
    except ShardingError as refused:
        return ", ".join(
            sorted({d.slug for d in refused.diagnostics if d.severity is Severity.ERROR})
        )
    left = [op.operation.name for op in operations(local.root) if "sdy" in op.operation.name]
    if left:
        return f"left over: {left}"
    wrapped = run_pipeline(propagated, "sp-partition{wrap}").module
    executable = compile_module(wrapped, devices=8)
    shown, compiled = collectives(local), compiled_collectives(executable)
    # XLA may merge several of a kind into one.
    if set(shown) != set(compiled) or any(shown[kind] < compiled[kind] for kind in shown):
        return f"compiled to {compiled}, where {shown} stand"
    far = error(program, executable)
    return "right" if far < TOLERANCE else f"wrong by {far}"


def outcomes(names: Sequence[str], mesh: str = MESH) -> dict[str, str]:
    """The :func:`outcome` of each of :data:`PROGRAMS`."""
    return {name: outcome(PROGRAMS[name], mesh) for name in names}


def generated(seed: int) -> Program:
    """A few ops in a row on arguments that are cut anyhow."""
    choose = random.Random(seed)
    shapes = [tuple(choose.choice([8, 16]) for _ in range(choose.randint(1, 3))) for _ in "ab"]
    parts = choose.random() < 0.2
    steps = [(choose.randrange(12), choose.random()) for _ in range(choose.randint(2, 6))]

    def function(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        for kind, where in steps:
            a = _step(kind, where, a, b)
        return a, a.sum()

    arguments = [(_any_sharding(choose, len(shape), parts), shape) for shape in shapes]
    return Program(function, arguments)


def _step(kind: int, where: float, a: jax.Array, b: jax.Array) -> jax.Array:
    """``a`` after one op; as it is where the op does not fit it."""
    if not a.ndim:
        return a
    rank, dimension = a.ndim, int(where * a.ndim)
    size = a.shape[dimension]
    match kind:
        case 0:
            return jnp.sin(a) * 2
        case 1:
            return a.transpose(tuple((i + 1 + dimension) % rank for i in range(rank)))
        case 2 if rank > 1:
            return a.sum(dimension)
        case 3:
            weights = lax.broadcasted_iota(np.float32, (a.shape[-1], 8), 0) / 9
            return jnp.tensordot(a, weights, 1)
        case 4 if a.shape[-1] == b.shape[0]:
            return jnp.tensordot(a, b, 1)
        case 5 if rank < 3:
            return jnp.stack([a, a * 3], dimension)
        case 6 if rank > 1:
            return a.reshape((a.shape[0] * a.shape[1], *a.shape[2:]))
        case 7 if rank < 3 and a.shape[0] >= 8:
            return a.reshape((a.shape[0] // 4, 4, *a.shape[1:]))
        case 8:
            return jnp.concatenate([a, a + 1], dimension)
        case 9 if size >= 8:
            return lax.slice_in_dim(a, size // 4, size // 4 + size // 2, axis=dimension)
        case 10:
            return a / (1 + jnp.abs(a).sum(dimension, keepdims=True))
        case 11:
            return a + lax.broadcasted_iota(np.float32, a.shape, dimension)
        case _:
            return a


def _any_sharding(choose: random.Random, rank: int, parts: bool) -> str:
    dims = [WHOLE] * rank
    used: set[str] = set()
    for dimension in choose.sample(range(rank), rank):
        free = [
            cut
            for cut in (X, Y, XY, YX, *((MAJOR, MINOR) if parts else ()))
            if not used & {axis for axis in "xy" if f'"{axis}"' in cut}
        ]
        if free and choose.random() < 0.6:
            dims[dimension] = choose.choice(free)
            used |= {axis for axis in "xy" if f'"{axis}"' in dims[dimension]}
    return ", ".join(dims)


def generated_outcomes(seeds: Sequence[int]) -> dict[int, str]:
    """The :func:`outcome` of each of the programs that these seeds give."""
    return {seed: outcome(generated(seed)) for seed in seeds}


def shown_twice(names: Sequence[str], seeds: Sequence[int]) -> dict[str | int, str]:
    """The programs of which ``sp-explicit-collectives`` makes something else by a second run."""
    programs = {name: PROGRAMS[name] for name in names} | {seed: generated(seed) for seed in seeds}
    found: dict[str | int, str] = {}
    for name, program in programs.items():
        once = run_pipeline(program.module(), "sp-propagate,sp-explicit-collectives")
        again = run_pipeline(once.module, "sp-explicit-collectives")
        first, second = (result.module.text(debug_info=False) for result in (once, again))
        lines = difflib.unified_diff(first.splitlines(), second.splitlines(), lineterm="", n=0)
        new = {d.message for d in again.diagnostics} - {d.message for d in once.diagnostics}
        if first != second or new:
            found[name] = "\n".join([*lines, *new])
    return found


def traffic(names: Sequence[str]) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """What ``sp-explicit-collectives`` shows of each of :data:`PROGRAMS`, and what XLA compiles."""
    found = {}
    for name in names:
        propagated = run_pipeline(PROGRAMS[name].module(), "sp-propagate").module
        found[name] = shown_and_compiled(propagated)
    return found


def shown_and_compiled(propagated: Module) -> tuple[dict[str, int], dict[str, int]]:
    """The collectives of ``sp-explicit-collectives``, and those of XLA's own partitioner."""
    shown = run_pipeline(propagated, "sp-explicit-collectives").module
    return collectives(shown), compiled_collectives(compile_module(propagated, devices=8))


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mlp"


def mlp() -> Module:
    """The training step of the example, annotated by its rules and propagated."""
    spec = importlib.util.spec_from_file_location("export_step", EXAMPLE / "export_step.py")
    assert spec
    assert spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    annotate = f"sp-annotate{{rules={EXAMPLE / 'rules.toml'}}}"
    return run_pipeline(load(example.lower_step()), f"{annotate},sp-propagate").module


def mlp_traffic() -> tuple[dict[str, int], dict[str, int]]:
    """The :func:`shown_and_compiled` of the example."""
    return shown_and_compiled(mlp())


def mlp_differs() -> float:
    """How far the step that ``sp-partition`` writes is from that of XLA's own partitioner."""
    propagated = mlp()
    wrapped = run_pipeline(propagated, "sp-partition{wrap}").module
    source = input_source(propagated)
    results = []
    for module in (propagated, wrapped):
        executable = compile_module(module, devices=8)
        arguments = [executable.place(i, source.array(i)) for i in range(len(executable.arguments))]
        results.append(executable.execute(arguments))
    return max(
        float(np.max(np.abs(np.asarray(one) - np.asarray(other))))
        for parts in zip(*results, strict=True)
        for one, other in zip(*parts, strict=True)
    )
