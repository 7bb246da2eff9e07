"""Write GPT-2's training step as a StableHLO module that nobody has sharded.

    python examples/gpt2/export_step.py -o gpt2.mlir

The file is traced from shapes alone, so that it takes seconds and no memory
for weights. Its arguments keep their names, ``state.model.h.0.attn.qkv.kernel``
and so on; that is what partition rules match.
"""

from __future__ import annotations

import argparse
import io
import math
from pathlib import Path

import jax
import jax.numpy as jnp
from model import Batch, Config, abstract_state, make_step


def lower_step(config: Config, batch_size: int, sequence: int) -> jax.stages.Lowered:
    """Trace one step for one device; the state is donated, unused arguments stay."""
    graph, state = abstract_state(config)
    tokens = jax.ShapeDtypeStruct((batch_size, sequence), jnp.int32)
    step = jax.jit(make_step(graph), donate_argnums=0, keep_unused=True)
    return step.lower(state, Batch(tokens, tokens))


def write(lowered: jax.stages.Lowered, path: Path, emit: str) -> None:
    """Write the module as ``text`` with its locations, or as MLIR ``bytecode``."""
    if emit == "text":
        path.write_text(lowered.as_text(debug_info=True))
    else:
        buffer = io.BytesIO()
        lowered.compiler_ir("stablehlo").operation.write_bytecode(buffer)
        path.write_bytes(buffer.getvalue())


def main() -> None:
    """Parse the command line and write the module."""
    defaults = Config()
    parser = argparse.ArgumentParser(description="Export GPT-2's training step to StableHLO.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    parser.add_argument("--emit", choices=("text", "bytecode"), default="text")
    parser.add_argument("--batch", type=int, default=8, help="sequences per step (8)")
    parser.add_argument("--sequence", type=int, default=128, help="tokens per sequence (128)")
    parser.add_argument("--layers", type=int, default=defaults.layers, help="blocks (12)")
    parser.add_argument("--width", type=int, default=defaults.width, help="model width (768)")
    parser.add_argument("--heads", type=int, default=defaults.heads, help="heads (12)")
    parser.add_argument(
        "--vocabulary", type=int, default=defaults.vocabulary, help="tokens known (50304)"
    )
    parser.add_argument(
        "--scan", action="store_true", help="one block in a loop, instead of all unrolled"
    )
    options = parser.parse_args()
    if options.sequence > defaults.context:
        parser.error(f"--sequence {options.sequence} exceeds the context of {defaults.context}")
    if options.width % options.heads:
        parser.error(f"--width {options.width} is not a multiple of --heads {options.heads}")

    config = Config(
        layers=options.layers,
        width=options.width,
        heads=options.heads,
        vocabulary=options.vocabulary,
        scan=options.scan,
    )
    _, state = abstract_state(config)
    parameters = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state.model))
    write(lower_step(config, options.batch, options.sequence), options.output, options.emit)
    size = options.output.stat().st_size
    print(
        f"{options.output}: {parameters / 1e6:.1f} million parameters, "
        f"{len(jax.tree.leaves(state))} arrays in the state, {size / 1e6:.1f} MB of {options.emit}"
    )


if __name__ == "__main__":
    main()
