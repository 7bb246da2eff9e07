"""The door to MLIR: everything that passes, reports and runs need to know about a module.

MLIR's bindings are broad and thin; what is behind this door is the part that speaks shardpass's
language. ``load`` and ``Module.save`` move modules between files and memory, in every form that a
module has in a file (:mod:`shardpass.mlir.forms`), told apart by content. ``Module.arguments`` and
``Module.results`` give them the names that their user knows, in one spelling
(:mod:`shardpass.mlir.paths`). ``Shardings`` reads attributes into the canonical form of
:mod:`shardpass.canon` and writes them back. ``locate`` finds the line that an op was written on.
:mod:`shardpass.mlir.native` knows which C++ passes there are.

Nothing above this layer parses an attribute's text or walks a location by hand.
"""

from shardpass.mlir.attributes import (
    MHLO_SHARDING,
    NUM_PARTITIONS,
    SDY_SHARDING,
    Shardings,
    count_of,
    declare_mesh,
    free_mesh_name,
    mesh_ops,
    meshes_of,
    num_partitions,
    read_mhlo,
    set_num_partitions,
    write_mhlo,
)
from shardpass.mlir.call_graph import CALLS, CallGraph
from shardpass.mlir.context import make_context
from shardpass.mlir.entry import (
    MAIN,
    EntryName,
    EntryValue,
    aliases_of,
    argument_attributes,
    arguments_of,
    entries_of,
    entry_function,
    is_of_shardy,
    is_public,
    mhlo_shardings,
    present_as_before,
    present_as_main,
    result_attributes,
    results_of,
    rewrite_entries,
    set_argument_attributes,
    set_result_attributes,
    static_sizes,
    where_written,
    with_entry,
)
from shardpass.mlir.errors import from_mlir_error, hearing
from shardpass.mlir.for_xla import prepare_for_xla
from shardpass.mlir.forms import FORMS, Emit, Form
from shardpass.mlir.locations import at_place, file_positions, locate, location_names
from shardpass.mlir.module import Module, load, parse, save
from shardpass.mlir.paths import dotted
from shardpass.mlir.walk import ADVANCE, collect, operations, visit, where, with_attribute
from shardpass.mlir.writer import Writer

__all__ = [
    "ADVANCE",
    "CALLS",
    "FORMS",
    "MAIN",
    "MHLO_SHARDING",
    "NUM_PARTITIONS",
    "SDY_SHARDING",
    "CallGraph",
    "Emit",
    "EntryName",
    "EntryValue",
    "Form",
    "Module",
    "Shardings",
    "Writer",
    "aliases_of",
    "argument_attributes",
    "arguments_of",
    "at_place",
    "collect",
    "count_of",
    "declare_mesh",
    "dotted",
    "entries_of",
    "entry_function",
    "file_positions",
    "free_mesh_name",
    "from_mlir_error",
    "hearing",
    "is_of_shardy",
    "is_public",
    "load",
    "locate",
    "location_names",
    "make_context",
    "mesh_ops",
    "meshes_of",
    "mhlo_shardings",
    "num_partitions",
    "operations",
    "parse",
    "prepare_for_xla",
    "present_as_before",
    "present_as_main",
    "read_mhlo",
    "result_attributes",
    "results_of",
    "rewrite_entries",
    "save",
    "set_argument_attributes",
    "set_num_partitions",
    "set_result_attributes",
    "static_sizes",
    "visit",
    "where",
    "where_written",
    "with_attribute",
    "with_entry",
    "write_mhlo",
]
