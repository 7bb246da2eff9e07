"""What a user asks for once: the mesh, the rules on it and the passes to run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from shardpass.canon import MeshShape
from shardpass.compat.lowering import device_assignment
from shardpass.diagnostics import ShardingError
from shardpass.partition_rules import PartitionRules
from shardpass.passes import Pass
from shardpass.passes.annotate import Annotate
from shardpass.passes.pipeline import build
from shardpass.passes.propagate import Propagate
from shardpass.passes.units import Step
from shardpass.runtime.jitted.axis_types import JaxMesh, with_auto_axes
from shardpass.sharding import Mesh, make_mesh
from shardpass.sharding.conversion import as_mesh_shape, spec_to_tensor_sharding

#: More device ids than anybody compares by eye.
_MOST_DEVICES: Final = 16


@dataclass(frozen=True)
class Policy:
    """A mesh, and how values get their places on it.

    Attributes:
      mesh: JAX's own mesh, with devices or without.
      rules: the partition rules, over that mesh; ``None`` for none.
      pipeline: the passes that derive a plan.
      used_by_name: the places of the rules that :func:`shardpass.constrain` has looked up.
    """

    mesh: JaxMesh
    rules: PartitionRules | None
    pipeline: tuple[Step, ...] = field(repr=False)
    used_by_name: set[int] = field(default_factory=set, repr=False, compare=False)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # JAX asks for it with each operation that it traces under this policy.
        return hash((self.mesh, self.rules, self.pipeline))

    @classmethod
    def of(cls, mesh: Any, rules: Any = None, pipeline: Any = None) -> Policy:
        """Read what the user gave, and check it.

        Args:
          mesh: a mesh of JAX's or ours; a mapping from axis name to size stands for one of JAX's
            devices, those of all processes, with ``Auto`` axes.
          rules: what :meth:`PartitionRules.of` takes.
          pipeline: what :func:`shardpass.run_pipeline` takes; rules and propagation by default.

        Raises:
          ShardingError: ``bad-mesh``, ``not-enough-devices``, every fault of the rules, and
            ``bad-pipeline``, ``unknown-pass``, ``bad-option``.
        """
        held = jax_mesh(mesh)
        found = _read(rules, held)
        if pipeline is None:
            pipeline = [Annotate, Propagate] if found else [Propagate]
        return cls(held, found, tuple(build(pipeline)))

    def read(self, rules: Any) -> PartitionRules | None:
        """Other rules over the same mesh.

        Raises:
          ShardingError: every fault of theirs.
        """
        return _read(rules, self.mesh)

    def by_rules_alone(self) -> Policy:
        """The same without propagation and passes of the user's."""
        steps = build([Annotate]) if self.rules else []
        return dataclasses.replace(self, pipeline=tuple(steps))

    @property
    def shape(self) -> MeshShape:
        """The names and sizes of the mesh's axes."""
        return as_mesh_shape(self.mesh)

    @property
    def has_devices(self) -> bool:
        """Whether there is something to compile for."""
        return not isinstance(self.mesh, AbstractMesh)

    @property
    def given(self) -> dict[str, Any]:
        """What :func:`shardpass.run_pipeline` is to be given beside the pipeline."""
        takes_mesh = any(
            isinstance(step, Pass) and getattr(step, "mesh", self) is None for step in self.pipeline
        )
        return {"rules": self.rules, "mesh": self.shape if takes_mesh else None}

    @property
    def propagates(self) -> bool:
        """Whether the plan settles every value."""
        return any(isinstance(step, Propagate) for step in self.pipeline)

    @property
    def is_built_in(self) -> bool:
        """Whether no pass of the user's takes part."""
        return all(type(step) in (Annotate, Propagate) for step in self.pipeline)

    @property
    def decides_inside(self) -> bool:
        """Whether a plan may speak of values that are neither arguments nor results."""
        if self.rules is not None and self.rules.has_op_rules:
            return True
        return not all(isinstance(step, (Annotate, Propagate)) for step in self.pipeline)

    def sharding(self, spec: Any, *, with_types: bool = False) -> NamedSharding:
        """``spec`` on the mesh, whose axes are ``Auto`` unless the values have types."""
        return NamedSharding(self.mesh if with_types else with_auto_axes(self.mesh), spec)


#: The policy of the function of ``shardpass.jit`` that is being traced. JAX takes it into the keys
#: of its caches.
current_policy: Final = jax.make_user_context(None)


def _read(rules: Any, mesh: JaxMesh) -> PartitionRules | None:
    return None if rules is None else PartitionRules.of(rules, mesh=as_mesh_shape(mesh))


def jax_mesh(mesh: Any) -> JaxMesh:
    """The mesh of JAX's own that ``mesh`` is, holds or describes.

    Raises:
      ShardingError: ``bad-mesh``, ``not-enough-devices``, ``abstract-type``.
    """
    if isinstance(mesh, MeshShape):
        mesh = dict(mesh.axes)
    if isinstance(mesh, Mapping):
        mesh = make_mesh(tuple(mesh.values()), tuple(mesh), AxisType.Auto)
    if isinstance(mesh, Mesh):
        return mesh.to_jax()
    if isinstance(mesh, (jax.sharding.Mesh, AbstractMesh)):
        return mesh
    raise ShardingError(
        "abstract-type",
        f"mesh is {mesh!r} of type {type(mesh).__name__}",
        help='hand over a mesh (jax.make_mesh((2, 4), ("data", "model"))), or a mapping like '
        '{"data": 2, "model": 4}',
    )


def fixed(given: Any, policy: Policy, what: str) -> Any:
    """Shardings as the user gave them, with a spec meaning one on the mesh; ``None`` stays open.

    A sharding of another class, or on a mesh of other axes over the same devices, becomes the one
    on the mesh that lays a value out in the same way: plans speak by the names of one mesh.

    Raises:
      ShardingError: ``abstract-type``; ``device-order``, ``mesh-mismatch`` for other devices;
        ``not-expressible`` for what no whole axes of the mesh say; ``unknown-axis``,
        ``duplicate-axis``, ``bad-spec``.
    """

    def one(path: Any, leaf: Any) -> Any:
        if leaf is None:
            return None
        where = f"{what}{jax.tree_util.keystr(path)}"
        if isinstance(leaf, jax.sharding.Sharding):
            check_devices(leaf, policy.mesh, where)
            return leaf if _is_on(leaf, policy.shape) else _respelt(leaf, policy, where)
        if isinstance(leaf, PartitionSpec):
            try:
                spec_to_tensor_sharding(policy.shape, leaf, len(leaf))
            except ShardingError as error:
                raise error.about(f"{where} holds {spec_text(leaf)}") from error
            return policy.sharding(leaf)
        raise ShardingError(
            "abstract-type",
            f"{where} holds {leaf!r} of type {type(leaf).__name__}",
            help="give a sharding, a PartitionSpec on the mesh, or None where the plan decides",
        )

    return jax.tree_util.tree_map_with_path(one, given, is_leaf=is_sharding_leaf)


def _is_on(sharding: jax.sharding.Sharding, mesh: MeshShape) -> bool:
    """Whether ``sharding`` speaks by the axes of ``mesh``, of whatever types."""
    return isinstance(sharding, NamedSharding) and as_mesh_shape(sharding.mesh).axes == mesh.axes


def _respelt(sharding: jax.sharding.Sharding, policy: Policy, where: str) -> NamedSharding:
    """``sharding`` by whole axes of the mesh, for a value of as many dimensions as it speaks of."""
    # Late, since it comes with the whole object model.
    from shardpass.sharding.convert import as_ours, rank_of, to_named

    axes = policy.shape.describe()
    if isinstance(sharding, NamedSharding) and PartitionSpec.UNCONSTRAINED in sharding.spec:
        raise ShardingError(
            "not-expressible",
            f"{where} leaves dimensions to propagation on the mesh "
            f"{as_mesh_shape(sharding.mesh).describe()}, and the function is on the mesh {axes}",
            help="say it on the mesh of the function",
        )
    try:
        named = to_named(sharding, with_auto_axes(policy.mesh))
    except ShardingError as error:
        raise error.about(f"{where} is not on the mesh of the function, {axes}") from error
    # A spec may be shorter than what it is for: with these it is not taken for fewer dimensions.
    rest = [None] * (rank_of(as_ours(sharding)) - len(named.spec))
    spec = PartitionSpec(*named.spec, *rest)
    kind = named.memory_kind
    if not (policy.has_devices or _is_abstract(sharding)):
        # What is the usual memory of a device here may not be that of those it is compiled for.
        device: Any = device_assignment(sharding)[0]
        kind = None if kind == device.default_memory().kind else kind
    return NamedSharding(with_auto_axes(policy.mesh), spec, memory_kind=kind)


def check_devices(sharding: jax.sharding.Sharding, mesh: JaxMesh, what: str) -> None:
    """Refuse a sharding of other devices than those of ``mesh``, or of those in another order.

    Raises:
      ShardingError: ``device-order``, with both orders; ``mesh-mismatch``.
    """
    if isinstance(mesh, AbstractMesh) or _is_abstract(sharding):
        return
    own, other = list(mesh.devices.flat), list(device_assignment(sharding))
    if own == other:
        return
    slug, which = ("device-order", "the devices in another order")
    if set(own) != set(other):
        slug, which = ("mesh-mismatch", "other devices")
    raise ShardingError(
        slug,
        f"{what} is on {which} than the mesh of the function",
        notes=(f"the mesh has {ids_of(own)}", f"{what} has {ids_of(other)}"),
        help="make its mesh of the same devices in the same order",
    )


def _is_abstract(sharding: jax.sharding.Sharding) -> bool:
    return isinstance(getattr(sharding, "mesh", None), AbstractMesh)


def ids_of(devices: Sequence[Any]) -> str:
    """``cpu devices 0, 1, 2``."""
    shown = ", ".join(str(device.id) for device in devices[:_MOST_DEVICES])
    more = len(devices) - _MOST_DEVICES
    platform = devices[0].platform if devices else "no"
    return f"{platform} devices {shown}" + (f" and {more} more" if more > 0 else "")


def spec_text(spec: PartitionSpec) -> str:
    """``P('data', None)``, JAX's spec or ours: which of equal ones JAX keeps is chance."""
    return f"P{tuple(spec)!r}"


def is_sharding_leaf(value: Any) -> bool:
    """Whether ``value`` is a leaf of a tree of shardings."""
    return value is None or isinstance(value, (PartitionSpec, jax.sharding.Sharding))
