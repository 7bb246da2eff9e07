"""Constraints on values inside a function, by a spec or by the name that rules have for them."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding

from shardpass.diagnostics import Diagnostic, Severity, ShardingError, did_you_mean
from shardpass.partition_rules import PartitionRules
from shardpass.partition_rules.resolve import resolve_spec
from shardpass.partition_rules.spec import Spec
from shardpass.runtime.jitted.axis_types import manual_axes, typed, with_auto_axes
from shardpass.runtime.jitted.policy import Policy, current_policy, jax_mesh, spec_text
from shardpass.runtime.jitted.telling import warn
from shardpass.sharding.conversion import as_mesh_shape, spec_of
from shardpass.sharding.partition_spec import axes_of


def constrain(x: Any, spec: Any, *, mesh: Any = None, rules: Any = None) -> Any:
    """``x``, laid out as said.

    Args:
      x: a value or a tree of values, inside a traced function or not.
      spec: a ``PartitionSpec``, or a name, for which the first rule that matches it holds as it
        would for an argument of that path (``constrain(x, "activations")``).
      mesh: the mesh; inside a function of :func:`shardpass.jit` that function's, if not given, and
        elsewhere that of ``jax.set_mesh``.
      rules: the rules for names; inside a function of :func:`shardpass.jit` that function's.

    Returns:
      ``x`` under a constraint. Where it did nothing, which is warned of, ``x`` itself.

    Raises:
      ShardingError: ``bad-mesh`` where there is none; ``bad-rules`` for a name without rules;
        ``unused-rule`` for a name that no rule matches; ``rank-mismatch``, ``indivisible``,
        ``unknown-axis``.
    """
    policy = _policy(mesh, rules)
    return jax.tree.map(lambda leaf: _constrained(leaf, spec, policy), x)


def _policy(mesh: Any, rules: Any) -> Policy:
    around: Policy | None = current_policy.value
    if mesh is None:
        mesh = around.mesh if around else _set_mesh()
    if mesh is None:
        raise ShardingError(
            "bad-mesh",
            "constrain is called outside of any function of shardpass.jit, and there is no mesh",
            help="hand it over: constrain(x, spec, mesh=mesh), or set it: jax.set_mesh(mesh)",
        )
    held = jax_mesh(mesh)
    if rules is None:
        given = around.rules if around else None
    else:
        given = PartitionRules.of(rules, mesh=as_mesh_shape(held))
    return Policy(held, given, (), around.used_by_name if around else set())


def _set_mesh() -> Any:
    mesh = jax.sharding.get_abstract_mesh()
    return None if mesh.empty else mesh


def _constrained(x: Any, spec: Any, policy: Policy) -> Any:
    shape = jax.numpy.shape(x)
    cut = _spec(spec, shape, policy)
    axes = {name for entry in cut for name in axes_of(entry)}
    if taken := axes & manual_axes(policy.mesh):
        raise ShardingError(
            "not-supported",
            f"a value is to be cut over {', '.join(sorted(taken))} inside a shard_map over it",
            help="inside, each device has its own block: constrain over the other axes",
        )
    if kind := typed(x):
        _say_that_it_did_nothing(
            spec, f"the value has {spec_text(kind.spec)} in its type, which holds"
        )
        return x
    if axes and all(policy.mesh.shape[name] == 1 for name in axes):
        _say_that_it_did_nothing(spec, "all its axes have size 1")
    return jax.lax.with_sharding_constraint(x, NamedSharding(_mesh_here(policy), cut))


def _mesh_here(policy: Policy) -> Any:
    around = jax.sharding.get_abstract_mesh()
    if AxisType.Manual in around.axis_types:
        return around
    return with_auto_axes(policy.mesh)


def _spec(spec: Any, shape: tuple[int, ...], policy: Policy) -> Any:
    if isinstance(spec, str):
        return _by_name(spec, shape, policy)
    found = resolve_spec(Spec.of(spec), policy.shape, shape, subject="a constrained value")
    return spec_of(found.sharding)


def _by_name(name: str, shape: tuple[int, ...], policy: Policy) -> Any:
    if policy.rules is None:
        raise ShardingError(
            "bad-rules",
            f'constrain(x, "{name}") asks for a rule, and there are none',
            help="give shardpass.jit rules, or constrain by a PartitionSpec",
        )
    match = policy.rules.for_value(name, name, shape)
    if match is None:
        raise ShardingError(
            "unused-rule",
            f'no rule matches the name "{name}"',
            help=did_you_mean(name, [str(rule.match) for rule in policy.rules.rules])
            or "add one: match = '^" + name + "$'",
        )
    policy.used_by_name.update((match.index, *match.others))
    found = policy.rules.resolve(match, shape, mesh=policy.shape, subject=f'value "{name}"')
    for diagnostic in found.diagnostics:
        warn(str(diagnostic))
    return spec_of(found.sharding)


def _say_that_it_did_nothing(spec: Any, why: str) -> None:
    warn(
        str(
            Diagnostic(
                Severity.WARNING, "no-constraint", f"constrain(x, {spec!r}) did nothing: {why}"
            )
        )
    )
