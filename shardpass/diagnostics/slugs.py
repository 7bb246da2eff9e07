"""The catalogue: every slug that a diagnostic may carry, and what it stands for.

Grouped by the layer that speaks of it first. A slug is never renamed once released: scripts and
``expected-error`` comments hold on to it. Passes that live elsewhere use slugs of their own with a
slash in them (``acme/too-large``), which are not listed here.
"""

from __future__ import annotations

from typing import Final

SLUGS: Final[dict[str, str]] = {
    # canon: the algebra and its text
    "syntax": "text that the grammar does not allow",
    "trailing-text": "a complete value followed by something else",
    "unknown-axis": "an axis name that the mesh does not have",
    "duplicate-axis": "an axis, or overlapping parts of one, used twice",
    "bad-sub-axis": "a sub-axis that does not divide its axis, or is the whole of it",
    "axis-order": "axes that must come in mesh order, or can be merged, and are not",
    "bad-priority": "a priority on a closed dimension without axes, or a negative one",
    "bad-reduction": "a reduction kind that does not exist, or one without unreduced axes",
    "bad-mesh": "a mesh that cannot be: repeated names, sizes below one, wrong device ids",
    "bad-tile-assignment": "tiles, devices or a permutation that do not fit each other",
    "duplicate-device": "a device id that stands twice",
    "rank-mismatch": "a sharding for another number of dimensions than the value has",
    "indivisible": "a dimension that the pieces it is cut into do not divide",
    "device-count": "a sharding for another number of devices than there are",
    "not-expressible": "a layout that the asked-for notation cannot say",
    "mesh-mismatch": "shardings on different meshes where one is needed",
    # sharding: the object model
    "bad-spec": "an entry that a PartitionSpec cannot hold",
    "not-enough-devices": "a mesh with more devices than exist",
    "memory-kind": "a memory kind that the device does not have",
    "device-free": "a device asked of a mesh that has none",
    "not-local": "the block of a mesh that this process holds, where there is none",
    "missing-devices": "devices that a mesh or sharding was saved on, and that are not here",
    "bad-state": "a saved mesh, spec or sharding that is damaged, or of an unknown version",
    "abstract-type": "an object of a type that the function does not take",
    "bad-reshape": "a shape or an order of dimensions that the tiles of a sharding cannot take",
    "unknown-dimension": "a dimension that a value, or the tiles of a sharding, do not have",
    "mapped-size": "a mapped dimension that does not have one element for each device",
    "device-order": "shardings of the same devices in another order, where one is needed",
    "mixed-backends": "devices of different backends in one sharding",
    # mlir: files and modules
    "unreadable": "a file that cannot be opened or is not a module",
    "unwritable": "an output that cannot be written",
    "mlir": "what MLIR's own parser or verifier reported",
    "no-entry-function": "a module without a public function to annotate or run",
    "dynamic-shape": "a dimension without a static size",
    # partition rules and annotation
    "bad-rules": "a rules file or rule that says something it cannot",
    "bad-regex": "a regular expression that does not compile",
    "unused-rule": "a rule that matched nothing",
    "unmatched": "an argument that no rule matched",
    "axis-taken": "an entry of a spec that cuts nothing, since another has its mesh axis",
    "rule-conflict": "two rules that give one value different shardings",
    "scalar-spec": "a spec on a value without dimensions",
    "replicated": "a value left replicated, and why",
    "alias-layout": "a result that shares a donated argument's buffer under another layout",
    # passes and pipelines
    "unknown-pass": "a pass name that nobody registered",
    "pass-clash": "a pass name that several distributions have",
    "bad-plugin": "an entry point of the group shardpass.passes that is no pass",
    "bad-option": "an option that a pass does not have, or a value of the wrong type",
    "bad-pipeline": "a pipeline text that cannot be read or nested",
    "pass-failed": "a pass that stopped without saying more",
    "not-supported": "something the pass leaves to a later one, or does not do at all",
    "already-annotated": "a value that carries a sharding already",
    "mixed-notations": "one value with both an sdy and an mhlo sharding",
    "unpaired-manual": "a manual region that is entered but not left, or the reverse",
    "shape-mismatch": "a local shape that is not what a device holds of the global one",
    "missing-sharding": "a custom call that must carry a sharding and does not",
    "misplaced-sharding": "a sharding on something that is, or makes, no value",
    "propagation-stopped": "a value where propagation did not go on, and why",
    "not-propagated": "a module that propagation has not been through, where it must have been",
    "not-partitionable": "what cannot be taken apart into a program for one device",
    "uneven-rewritten": "an uneven sharding that propagation changes",
    # runtime
    "compile-failed": "XLA refused the module",
    "run-failed": "XLA started the program and gave up",
    "process-aborted": "a child process died instead of answering",
    "process-lost": "one of the processes of a run that died, hangs, or raised something",
    "processes-differ": "processes of one run that were given different programs",
    "bad-inputs": "inputs that do not fit the module's arguments",
    "not-a-proof": "a comparison that could not have failed",
    "results-differ": "a result that is not the unsharded program's",
    "layout-not-applied": "an argument or result that XLA lays out otherwise than it is annotated",
    "partitioner": "a partitioner that the module's notation cannot use",
    # inside jax
    "bad-argument": "an argument of shardpass.jit that does not fit the function or its values",
    "deleted": "an argument that was donated to an earlier call",
    "no-constraint": "a constraint that changes nothing, and why",
    "not-bound": "what a pass does beyond layouts, which shardpass.jit does not bind",
    "process-local": "an array on the devices of one process, where one on those of all is needed",
    "moved": "an argument that arrives in another place than the plan has for it",
    "left-alone": "a function that plugin mode compiles without a plan, and why",
    "unused-name": "a name to leave alone that no function has",
    "unknown-jax": "a JAX whose inside is not as plugin mode knows it",
    # command line and tests
    "usage": "a command line that cannot be understood",
    "reproducer": "where a failure was put, with the command that repeats it",
    "roundtrip": "a module that is another one when it is printed and parsed",
    "unmet-expectation": "an expected diagnostic that was not reported, or the reverse",
    "no-tests": "a folder in which lit finds no tests, or a suite that it cannot read",
    "unread-directive": "a line of a lit test that looks like a directive and that nobody reads",
    "unchecked-test": "a lit test, or a RUN line of one, whose outcome nothing is held against",
    "missing-package": "an optional package that is not installed",
    "internal": "a fault of shardpass itself",
}
