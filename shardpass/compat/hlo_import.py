"""XLA's readers and writers of HLO, as far as ``jax.extend.mlir`` does not offer them.

``jax.extend.mlir.hlo_to_stablehlo`` reads protos. HLO text is parsed by a function of jaxlib's that
has no public name, and the way from StableHLO to HLO is JAX's own. Both work on serialized protos
here, since jaxlib's classes of modules have no public name either.
"""

from __future__ import annotations

from typing import Any

from jaxlib import xla_client

_client: Any = xla_client


def proto_of_text(text: str) -> bytes:
    """The serialized ``HloModuleProto`` of HLO text.

    Raises:
      jax.errors.JaxRuntimeError: where the text cannot be parsed.
    """
    return _client.hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def proto_of_stablehlo(bytecode: bytes) -> bytes:
    """The serialized ``HloModuleProto`` of a StableHLO module, as MLIR bytecode."""
    return _client._xla.mlir.mlir_module_to_xla_computation(
        bytecode, use_tuple_args=False, return_tuple=False
    ).as_serialized_hlo_module_proto()


def text_of_proto(proto: bytes) -> str:
    """HLO text with all constants and metadata, which :func:`proto_of_text` reads."""
    hlo = _client.hlo
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = True
    return hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string(options)
