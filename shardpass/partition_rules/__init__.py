"""User policy: which argument, result or op gets which sharding.

A plan is a list of rules, each a condition and a spec, in order of preference. It is written in
Python, where a list of ``(regex, PartitionSpec)`` pairs is enough, or in a TOML file
(:mod:`shardpass.partition_rules.toml_file` shows one). This layer knows names and shapes but no
module: the pass ``sp-annotate`` walks the module and asks, value by value,
:meth:`PartitionRules.for_value` and :meth:`PartitionRules.resolve`.

Four modules carry the idea: ``spec`` (what a rule says about dimensions), ``logical`` (names that
mean mesh axes), ``matching`` (which rule holds) and ``resolve`` (what it means on a mesh). Nothing
here imports jax.
"""

from shardpass.partition_rules.logical import LogicalAxes
from shardpass.partition_rules.matching import Match
from shardpass.partition_rules.resolve import Resolution, resolve_spec
from shardpass.partition_rules.rule import Rule
from shardpass.partition_rules.rules import PartitionRules
from shardpass.partition_rules.spec import OPEN, DimensionSpec, Spec

__all__ = [
    "OPEN",
    "DimensionSpec",
    "LogicalAxes",
    "Match",
    "PartitionRules",
    "Resolution",
    "Rule",
    "Spec",
    "resolve_spec",
]
