"""``sp-name-axes``: the axes that an import inferred get the user's names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from jax.extend.mlir import ir

from shardpass.canon import MeshShape
from shardpass.diagnostics import Diagnostic, ShardingError, Sink
from shardpass.mlir import locate, meshes_of
from shardpass.partition_rules.mesh_text import parse_mesh
from shardpass.passes.base import Pass, Stage, option
from shardpass.passes.meshes.mesh_plan import (
    MeshPlan,
    Spoken,
    mesh_option,
    place_of,
    spoken_of,
    symbol_of,
    where_declared,
)
from shardpass.passes.shardy.survey import REFUSE_GSPMD
from shardpass.passes.verify import REFUSE_OTHER_COUNT

# The orders of the user's axes that are tried where the one that was given does not fit.
_MOST_ORDERS = 24


@dataclass(frozen=True, kw_only=True)
class NameAxes(Pass):
    """Say every sharding by the axes of the user's mesh.

    Each mesh of as many devices gets the axes of the option, in its own order of devices. Where the
    sizes are those that it had, its axes are renamed; otherwise they are grouped anew: an old axis
    becomes a row of new ones (``_axis_0=8`` is ``data, model`` of ``data=2, model=4``) or a part of
    one (``_axis_0=2`` is ``"model":(1)2`` of ``model=8``). Meshes that have become equal become
    one. Every device holds what it held before. A mesh that comes with ``device_ids`` (from Python)
    says the order of the devices, too.

    Leaves alone: meshes of another number of devices, with a warning; of single devices, and
    without axes.
    An error: shardings that the axes cannot say, each with the reason, and an order of the axes
    that can, if there is one; a mesh of another size than any of the module, which
    ``sp-retarget`` is for; a module in GSPMD's notation.
    Order: behind ``sp-import-mhlo`` and ``sp-merge-meshes``.
    """

    name: ClassVar[str] = "sp-name-axes"
    is_for_gradients: ClassVar[bool] = True

    mesh: Any = option(None, help="the axes, as data=2,model=4", parse=parse_mesh)

    def stages(self) -> Sequence[Stage]:
        """The naming, on modules in Shardy's notation."""
        return (REFUSE_GSPMD, REFUSE_OTHER_COUNT, self.run)

    def run(self, root: ir.Operation, sink: Sink) -> None:
        """Name the axes of the meshes of ``root``."""
        wanted = mesh_option(self.mesh, self.name)
        declared = meshes_of(root)
        spoken = spoken_of(root)
        grids = [m for m in dict.fromkeys([*declared.values(), *spoken]) if m.axes]
        if not grids:
            sink.warning("mesh-mismatch", f"{self.name}: the module has no mesh with axes to name")
            return
        group = [mesh for mesh in grids if mesh.size == wanted.size]
        if not group:
            self._refuse_size(root, declared, grids, wanted)
        try:
            plan = _plan(root, group, spoken, wanted)
        except ShardingError as error:
            sink.report_error(error)
            return
        respell, faults = plan.faults(root)
        if faults:
            told = [f"the mesh asked for is {wanted.describe()}"]
            help = _what_fits(root, group, spoken, wanted)
            for fault in faults:
                sink.report(replace(fault, notes=(*fault.notes, *told), help=fault.help or help))
            return
        plan.carry_out(root, respell, sink)
        for name, mesh in meshes_of(root).items():
            if mesh.axes and mesh.size != wanted.size and mesh in spoken:
                sink.warning(
                    "mesh-mismatch",
                    f"@{name} ({mesh.describe()}) has {mesh.size} devices and keeps its axes, "
                    f"since {wanted.describe()} has {wanted.size}",
                    location=locate(place_of(root, name)),
                    help="name its axes in a run of their own",
                )

    def _refuse_size(
        self,
        root: ir.Operation,
        declared: dict[str, MeshShape],
        grids: Sequence[MeshShape],
        wanted: MeshShape,
    ) -> None:
        name = symbol_of(declared, grids[0])
        what = "an inlined mesh" if name is None else f"@{name}"
        raise ShardingError(
            "device-count",
            f"{wanted.describe()} has {wanted.size} devices, and {what} ({grids[0].describe()}) "
            f"has {grids[0].size}",
            location=where_declared(root, declared, grids[0]),
            help="give axes for as many devices; sp-retarget changes their number",
        )


def _plan(
    root: ir.Operation, group: Sequence[MeshShape], spoken: Spoken, wanted: MeshShape
) -> MeshPlan:
    targets = {
        mesh: wanted if wanted.device_ids else MeshShape(wanted.axes, mesh.device_ids)
        for mesh in group
    }
    return MeshPlan.of(root, targets, spoken)


def _what_fits(
    root: ir.Operation, group: Sequence[MeshShape], spoken: Spoken, wanted: MeshShape
) -> str:
    """An order of the user's axes that says everything, or the sizes that do."""
    orders = itertools.permutations(wanted.axes)
    for axes in itertools.islice(orders, 1, _MOST_ORDERS):
        other = MeshShape(axes, wanted.device_ids)
        if not _faults(root, group, spoken, other):
            return f"in another order the axes say everything: {other.describe()}"
    sizes = " x ".join(str(size) for size in group[0].sizes)
    return f"give axes of the sizes {sizes}, in this order, or of products of neighbours"


def _faults(
    root: ir.Operation, group: Sequence[MeshShape], spoken: Spoken, wanted: MeshShape
) -> list[Diagnostic]:
    try:
        return _plan(root, group, spoken, wanted).faults(root)[1]
    except ShardingError as error:
        return list(error.diagnostics)
