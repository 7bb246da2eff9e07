"""``sp-merge-meshes``: equal and compatible meshes of a module become one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from jax.extend.mlir import ir

from shardpass.canon import MeshShape, refined_mesh
from shardpass.diagnostics import ShardingError, Sink, did_you_mean
from shardpass.mlir import locate, meshes_of
from shardpass.passes.base import Pass, option
from shardpass.passes.meshes.mesh_plan import MeshPlan, Spoken, place_of, spoken_of, try_all

# As XLA's importer and its own pass call axes that nobody named (`_axis_0`), and others (`axis_0`).
_INFERRED = re.compile(r"_.*|axis_\d+")


@dataclass(frozen=True, kw_only=True)
class MergeMeshes(Pass):
    """Put all shardings over the same devices on one mesh, since Shardy propagates within one.

    Meshes over the same devices are said on one of them: equal ones under other names; those that
    differ in the names or the factorisation of their axes (``x=8`` and ``a=2, b=4``), in sub-axes
    where need be (``"a"`` is ``"x":(1)2``); those whose devices stand in another order, if that is
    a transpose of its axes; and meshes inlined into shardings. The mesh that stays is the first
    in the module that a sharding is on and whose axes are not called ``_axis_0`` and the like, or
    the next that has axes for everything (a manual axis has to be whole), or one that refines them
    all. ``@empty_mesh``, which JAX declares for values that are nowhere in particular, goes into
    the mesh with the most devices. The others are erased. Every device holds what it held before.

    Leaves alone: meshes of single devices, but for equal ones; meshes of another number of
    devices, with a warning where shardings are on them; lists of devices in collectives.
    An error: meshes of as many devices, both in use, of which none has axes for the other's
    shardings.
    Order: in front of ``sp-propagate``, behind what brings in meshes; before ``sp-name-axes``.
    """

    name: ClassVar[str] = "sp-merge-meshes"
    is_for_gradients: ClassVar[bool] = True

    keep: str | None = option(None, help="the mesh to keep, by its symbol")

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Merge the meshes of ``root``."""
        declared = meshes_of(root)
        spoken = spoken_of(root)
        if self.keep is not None:
            self._check_keep(declared)
        shapes = list(dict.fromkeys([*declared.values(), *spoken]))
        grids = [mesh for mesh in shapes if mesh.axes]
        sizes = sorted({mesh.size for mesh in grids}, reverse=True)
        for size in sizes:
            group = [mesh for mesh in grids if mesh.size == size]
            if size == sizes[0]:
                group += [mesh for mesh in shapes if not (mesh.axes or mesh.is_maximal)]
            self._merge(root, group, spoken, sink)
        if sink.has_errors:
            return
        _fold_equal(root, [mesh for mesh in shapes if not mesh.axes], spoken, sink)
        if len(sizes) > 1:
            _tell_of_others(root, spoken_of(root), sizes[0], sink)

    def _check_keep(self, declared: dict[str, MeshShape]) -> None:
        assert self.keep is not None
        if self.keep not in declared:
            known = ", ".join(f"@{name}" for name in declared) or "no mesh"
            raise ShardingError(
                "bad-option",
                f"option keep of sp-merge-meshes: there is no mesh @{self.keep}, the module has "
                f"{known}",
                help=did_you_mean(self.keep, declared) or "name a mesh by its symbol",
            )
        if not declared[self.keep].axes:
            raise ShardingError(
                "bad-option",
                f"option keep of sp-merge-meshes: @{self.keep} has no axes for others to go to",
                help="name a mesh with axes",
            )

    def _merge(
        self, root: ir.Operation, group: list[MeshShape], spoken: Spoken, sink: Sink
    ) -> None:
        """Say what is on the meshes of ``group`` on one of them."""
        declared = meshes_of(root)
        of_group = [name for name, mesh in declared.items() if mesh in group]
        if len(of_group) == 1 and not any(spoken.get(mesh) for mesh in group):
            return
        grids = sorted(
            (mesh for mesh in group if mesh.axes),
            key=lambda mesh: (mesh not in spoken, _is_inferred(mesh)),
        )
        if self.keep is not None and declared[self.keep] in grids:
            targets = [declared[self.keep]]
        else:
            targets = grids
        group = [*grids, *(mesh for mesh in group if not mesh.axes)]
        plans = [partial(_onto, root, group, spoken, target, self.keep) for target in targets]
        if sum(mesh in spoken for mesh in targets) > 1:
            plans.append(partial(_refined, root, group, spoken))
        found = try_all(plans, root)
        if isinstance(found, list):
            names = ", ".join(f"@{name}" for name in of_group)
            note = f"no mesh has axes for all that is on {names}"
            for fault in found:
                sink.report(replace(fault, notes=(*fault.notes, note)))
            return
        plan, respell = found
        plan.carry_out(root, respell, sink)


def _onto(
    root: ir.Operation,
    group: Sequence[MeshShape],
    spoken: Spoken,
    target: MeshShape,
    keep: str | None = None,
) -> MeshPlan:
    """All of ``group`` on ``target``."""
    return MeshPlan.of(root, dict.fromkeys(group, target), spoken, keep)


def _refined(root: ir.Operation, group: Sequence[MeshShape], spoken: Spoken) -> MeshPlan:
    """All of ``group`` on a mesh that is none of them."""
    return _onto(
        root, group, spoken, refined_mesh([mesh for mesh in group if mesh.axes and mesh in spoken])
    )


def _fold_equal(
    root: ir.Operation, shapes: Sequence[MeshShape], spoken: Spoken, sink: Sink
) -> None:
    """Let each of ``shapes``, which have no axes, be declared once."""
    for mesh in shapes:
        names = [name for name, other in meshes_of(root).items() if other == mesh]
        if len(names) > 1 or (names and spoken.get(mesh)):
            plan = MeshPlan.of(root, {mesh: mesh}, spoken)
            respell, _ = plan.faults(root)
            plan.carry_out(root, respell, sink)


def _tell_of_others(root: ir.Operation, spoken: Spoken, most: int, sink: Sink) -> None:
    declared = {name: mesh for name, mesh in meshes_of(root).items() if mesh.axes}
    main = next(name for name, mesh in declared.items() if mesh.size == most)
    for name, mesh in declared.items():
        if mesh.size == most or mesh not in spoken:
            continue
        sink.warning(
            "mesh-mismatch",
            f"@{name} ({mesh.describe()}) has {mesh.size} devices and stays apart from @{main}, "
            f"which has {most}: propagation stops between the two",
            location=locate(place_of(root, name)),
            help="constrain on one mesh what goes from one to the other",
        )


def _is_inferred(mesh: MeshShape) -> bool:
    return all(_INFERRED.fullmatch(name) for name in mesh.names)
