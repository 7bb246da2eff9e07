"""Modules that nobody wrote, in either notation, for ``tools/differential.py``.

What is drawn is what the converters have to do with: meshes with sub-axes in use and devices in an
order of their own, open dimensions, tuples, partial results, manual regions, several functions,
loops. The programs mean nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from shardpass.canon import (
    AxisRef,
    DimSharding,
    HloKind,
    HloSharding,
    MeshShape,
    TensorSharding,
    TileAssignment,
    to_hlo,
)

#: A size that the tiles of every mesh divide, sub-axes and all.
SIZE = 576
MESHES = (
    (("x", 2), ("y", 4)),
    (("x", 8),),
    (("a", 2), ("b", 2), ("c", 2)),
    (("a", 4), ("b", 6)),
    (("p", 2), ("q", 3)),
    (("x", 2), ("one", 1), ("z", 4)),
    (("a", 3), ("b", 4), ("c", 4)),
)


def a_mesh(chance: random.Random) -> MeshShape:
    """One of :data:`MESHES`, at times with its devices in another order."""
    mesh = MeshShape(chance.choice(MESHES))
    if chance.random() < 0.75:
        return mesh
    ids = list(range(mesh.size))
    if chance.random() < 0.5:
        ids.reverse()
    else:
        chance.shuffle(ids)
    return MeshShape(mesh.axes, tuple(ids))


def _pieces(mesh: MeshShape, chance: random.Random) -> list[AxisRef]:
    """Axes, and parts of some, none over another, in any order."""
    found: list[AxisRef] = []
    for name, size in mesh.axes:
        cuts = [n for n in range(2, size) if size % n == 0]
        if not cuts or chance.random() < 0.6:
            found.append(AxisRef(name))
            continue
        cut = chance.choice(cuts)
        # One of the two halves: both of them side by side would be the axis.
        found.append(chance.choice([AxisRef(name, 1, cut), AxisRef(name, cut, size // cut)]))
    chance.shuffle(found)
    return found


def a_sharding(
    mesh: MeshShape,
    rank: int,
    chance: random.Random,
    *,
    taken: Sequence[str] = (),
    partial: bool = True,
) -> TensorSharding:
    """Any sharding of so many dimensions, without the axes in ``taken``."""
    left = [axis for axis in _pieces(mesh, chance) if axis.name not in taken]
    dims: list[DimSharding] = []
    for _ in range(rank):
        axes = tuple(left.pop() for _ in range(min(len(left), chance.choice((0, 0, 1, 1, 2)))))
        is_open = chance.random() < 0.3
        priority = chance.choice((None, None, 0, 2)) if axes or is_open else None
        dims.append(DimSharding(axes, is_open, priority))
    order = {name: index for index, name in enumerate(mesh.names)}
    left.sort(key=lambda axis: (order[axis.name], axis.bounds(mesh)[0]))
    unreduced: tuple[AxisRef, ...] = ()
    replicated: tuple[AxisRef, ...] = ()
    if left and partial and chance.random() < 0.15:
        unreduced = (left.pop(),)
    if left and chance.random() < 0.2:
        replicated = (left.pop(),)
    return TensorSharding(mesh, tuple(dims), replicated, unreduced)


def _kind(rank: int) -> str:
    return f"tensor<{f'{SIZE}x' * rank}f32>"


class _Writer:
    """Writes the body of a function, one op after the other, over the values that there are."""

    def __init__(self, mesh: MeshShape, chance: random.Random, values: dict[str, int]) -> None:
        self.mesh = mesh
        self.chance = chance
        self.values = values
        self.lines: list[str] = []
        self._count = 0

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def text(self, sharding: TensorSharding) -> str:
        return sharding.to_sdy("mesh").removeprefix("#sdy.sharding")

    def constraint(self) -> None:
        source = self.chance.choice(list(self.values))
        rank = self.values[source]
        name = self.fresh()
        said = self.text(a_sharding(self.mesh, rank, self.chance))
        self.lines.append(f"{name} = sdy.sharding_constraint {source} {said} : {_kind(rank)}")
        self.values[name] = rank

    def call(self) -> None:
        """A custom call with one result or several."""
        source = self.chance.choice(list(self.values))
        ranks = [self.chance.randint(0, 3) for _ in range(self.chance.choice((1, 1, 2, 3)))]
        name = self.fresh()
        said = ", ".join(self.text(a_sharding(self.mesh, r, self.chance)) for r in ranks)
        attributes = f"{{sdy.sharding = #sdy.sharding_per_value<[{said}]>}}"
        kinds = ", ".join(map(_kind, ranks))
        count = f":{len(ranks)}" if len(ranks) > 1 else ""
        self.lines.append(
            f"{name}{count} = stablehlo.custom_call @op_{name[1:]}({source}) {attributes} : "
            f"({_kind(self.values[source])}) -> ({kinds})"
        )
        for index, rank in enumerate(ranks):
            self.values[f"{name}#{index}" if len(ranks) > 1 else name] = rank

    def mark(self) -> None:
        source = self.chance.choice(list(self.values))
        kind = _kind(self.values[source])
        if self.chance.random() < 0.5:
            group = self.chance.randint(1, 3)
            self.lines.append(f"sdy.sharding_group {source} group_id = {group} : {kind}")
            return
        name = self.fresh()
        direction = self.chance.choice(("NONE", "FORWARD", "BACKWARD"))
        self.lines.append(
            f"{name} = sdy.propagation_barrier {source} allowed_direction={direction} : {kind}"
        )
        self.values[name] = self.values[source]

    def function_call(self) -> None:
        source = next((name for name, rank in self.values.items() if rank == 2), None)
        if source is None:
            return
        name = self.fresh()
        kind = _kind(2)
        self.lines.append(f"{name} = func.call @f({source}) : ({kind}) -> {kind}")
        self.values[name] = 2

    def loop(self) -> None:
        """A ``while`` with a constraint in its body, or a ``case`` with one in a branch."""
        source = self.chance.choice(list(self.values))
        rank = self.values[source]
        kind = _kind(rank)
        said = self.text(a_sharding(self.mesh, rank, self.chance))
        name = self.fresh()
        if self.chance.random() < 0.5:
            self.lines.append(
                f"{name}:2 = stablehlo.while(%i = {source}, %n = %zero) : {kind}, tensor<i32>\n"
                "   cond {\n    %t = stablehlo.compare LT, %n, %last : (tensor<i32>, tensor<i32>)"
                " -> tensor<i1>\n    stablehlo.return %t : tensor<i1>\n  } do {\n"
                f"    %b = sdy.sharding_constraint %i {said} : {kind}\n"
                f"    stablehlo.return %b, %n : {kind}, tensor<i32>\n  }}"
            )
            self.values[f"{name}#0"] = rank
            return
        self.lines.append(
            f'{name} = "stablehlo.case"(%last) ({{\n'
            f"    %b = sdy.sharding_constraint {source} {said} : {kind}\n"
            f"    stablehlo.return %b : {kind}\n  }}, {{\n"
            f"    stablehlo.return {source} : {kind}\n  }}) : (tensor<i32>) -> {kind}"
        )
        self.values[name] = rank

    def region(self) -> None:
        """A manual computation over some of the axes, with a constraint over others."""
        sources = [name for name, rank in self.values.items() if rank]
        if not sources:
            return
        source = self.chance.choice(sources)
        rank = self.values[source]
        names = [name for name, size in self.mesh.axes if size > 1]
        manual = [n for n in names if self.chance.random() < 0.6] or names[:1]
        manual = [name for name in self.mesh.names if name in manual]
        cut = self.chance.randrange(rank)
        dims = tuple(
            DimSharding(tuple(AxisRef(n) for n in manual) if index == cut else ())
            for index in range(rank)
        )
        whole = self.text(TensorSharding(self.mesh, dims))
        tiles = 1
        for name in manual:
            tiles *= self.mesh.axis_size(name)
        sizes = [SIZE // tiles if index == cut else SIZE for index in range(rank)]
        local = f"tensor<{''.join(f'{size}x' for size in sizes)}f32>"
        axes = ", ".join(f'"{name}"' for name in manual)
        said = self.text(
            a_sharding(self.mesh, rank, self.chance, taken=manual, partial=False).closed()
        )
        name = self.fresh()
        kind = _kind(rank)
        self.lines.append(
            f"{name} = sdy.manual_computation({source}) in_shardings=[{whole}]"
            f" out_shardings=[{whole}] manual_axes={{{axes}}} (%s: {local}) {{\n"
            f"    %c = sdy.sharding_constraint %s {said} : {local}\n"
            f"    %m = stablehlo.abs %c : {local}\n"
            f"    sdy.return %m : {local}\n  }} : ({kind}) -> {kind}"
        )
        self.values[name] = rank


def shardy_module(chance: random.Random, *, regions: bool = True) -> str:
    """A module in Shardy's notation; ``regions`` for those that XLA's V2 text has no word for."""
    mesh = a_mesh(chance)
    ranks = [chance.randint(0, 3) for _ in range(chance.randint(1, 4))]
    writer = _Writer(mesh, chance, {f"%a{index}": rank for index, rank in enumerate(ranks)})
    steps = [writer.constraint, writer.call, writer.mark, writer.function_call, writer.loop]
    if regions:
        steps.append(writer.region)
    for _ in range(chance.randint(1, 6)):
        chance.choice(steps)()

    def placed(rank: int) -> str:
        if chance.random() < 0.3:
            return _kind(rank)
        said = a_sharding(mesh, rank, chance).to_sdy("mesh")
        return f"{_kind(rank)} {{sdy.sharding = {said}}}"

    arguments = ", ".join(f"%a{index}: {placed(rank)}" for index, rank in enumerate(ranks))
    arguments += ", %last: tensor<i32>"  # That of a loop; XLA unrolls what ends at a constant.
    names = chance.sample(list(writer.values), min(len(writer.values), chance.randint(1, 3)))
    kinds = [_kind(writer.values[name]) for name in names]
    results = ", ".join(placed(writer.values[name]) for name in names)
    # HLO forgets what nobody uses.
    writer.lines.append(_keep(writer.values))
    body = "\n  ".join(writer.lines)
    function = (
        f"func.func private @f(%a: {placed(2)}) -> ({placed(2)}) {{\n"
        f"  %0 = stablehlo.custom_call @inner(%a) : ({_kind(2)}) -> {_kind(2)}\n"
        f"  return %0 : {_kind(2)}\n}}\n"
    )
    return (
        f"module attributes {{mhlo.num_partitions = {mesh.size} : i32}} {{\n"
        f"sdy.mesh @mesh = {mesh}\n"
        f"func.func public @main({arguments}) -> ({results}) {{\n"
        f"  %zero = stablehlo.constant dense<0> : tensor<i32>\n  {body}\n"
        f"  return {', '.join(names)} : {', '.join(kinds)}\n}}\n"
        f"{function if '@f(' in body else ''}}}\n"
    )


def _keep(values: Mapping[str, int]) -> str:
    kinds = ", ".join(map(_kind, values.values()))
    return (
        f"stablehlo.custom_call @keep({', '.join(values)}) {{has_side_effect = true}} : "
        f"({kinds}) -> ()"
    )


def a_tiling(count: int, rank: int, chance: random.Random, *, unknown: bool = True) -> HloSharding:
    """Tiles over ``count`` devices, mostly such as an iota says; or a sharding of another kind."""
    if chance.random() < 0.1:
        return HloSharding.unknown() if unknown else HloSharding.replicated()
    if chance.random() < 0.05:
        return HloSharding.maximal(chance.randrange(count))
    axes = chance.choice([mesh for mesh in MESHES if _size(mesh) == count])
    mesh = MeshShape(axes)
    if chance.random() < 0.03 and rank:
        ids = list(range(count))
        chance.shuffle(ids)
        dims = [1] * rank
        dims[chance.randrange(rank)] = count
        return HloSharding(HloKind.TILED, TileAssignment.listed(dims, ids))
    found = to_hlo(a_sharding(mesh, rank, chance, partial=chance.random() < 0.3))
    return found if found.kind is not HloKind.UNREDUCED else HloSharding.replicated()


def _size(axes: Sequence[tuple[str, int]]) -> int:
    size = 1
    for _, one in axes:
        size *= one
    return size


def gspmd_module(chance: random.Random) -> str:
    """A module in GSPMD's notation that XLA's importer takes.

    It hands a module with ``@Sharding`` calls, or shardings on results, to GSPMD instead.
    """
    count = chance.choice(sorted({_size(mesh) for mesh in MESHES}))
    ranks = [chance.randint(0, 3) for _ in range(chance.randint(1, 5))]
    arguments = ", ".join(
        f'%a{index}: {_kind(rank)} {{mhlo.sharding = "{a_tiling(count, rank, chance)}"}}'
        for index, rank in enumerate(ranks)
    )
    lines: list[str] = []
    made: dict[str, int] = {}
    for number in range(chance.randint(0, 3)):
        source = chance.randrange(len(ranks))
        # jaxlib 0.10 dies of every tuple.
        given = [chance.randint(0, 3) for _ in range(chance.choice((1,) * 12 + (2, 3)))]
        # XLA dies of {unknown} on what an op gives.
        parts = [str(a_tiling(count, rank, chance, unknown=False)) for rank in given]
        said = parts[0] if len(parts) == 1 else f"{{{', '.join(parts)}}}"
        many = f":{len(given)}" if len(given) > 1 else ""
        for index, rank in enumerate(given):
            made[f"%v{number}#{index}" if many else f"%v{number}"] = rank
        lines.append(
            f'%v{number}{many} = stablehlo.custom_call @op_{number}(%a{source}) {{mhlo.sharding = "'
            f'{said}"}} : ({_kind(ranks[source])}) -> ({", ".join(map(_kind, given))})'
        )
    values = {f"%a{index}": rank for index, rank in enumerate(ranks)}
    lines.append(_keep({**values, **made}))
    body = "\n  ".join(lines)
    return (
        f"module attributes {{mhlo.num_partitions = {count} : i32, mhlo.num_replicas = 1 : i32, "
        'mhlo.frontend_attributes = {xla.sdy.import_mhlo_shardings = "t"}} {\n'
        f"func.func public @main({arguments}) -> {_kind(ranks[0])} {{\n  {body}\n"
        f"  return %a0 : {_kind(ranks[0])}\n}}\n}}\n"
    )
