"""Saving and loading of meshes, specs and shardings: ``copy``, ``pickle`` and JSON, by one road.

What is saved is a *state*, a plain dict of JSON values. ``pickle`` keeps it as it is, beside the
name of :func:`restore`; :func:`to_json` and :func:`from_json` turn it into text and back. It names
classes of this package and none of JAX's, and devices by platform and id, so that it can be read by
another process, on another machine, under another version of JAX.

Loading
-------
*Where JAX is running and has all the devices* (same platform and id), loading gives the live
object, equal to the one that was saved. *Elsewhere* it gives the device-free form: a ``Mesh``
without devices, a ``NamedSharding`` on one, for the other classes a :class:`DeviceFreeSharding
<shardpass.sharding.device_free.DeviceFreeSharding>`. That remembers which devices they were:
``bind()`` puts it back on them, and ``bind(devices)`` on others. Loading never starts JAX's
backends, so a process in which nothing has asked for a device yet gets the device-free form.

Copies are the object itself: all of this is immutable.

The JSON
--------
One object, on one line here broken into several::

    {"class": "NamedSharding", "version": 1,
     "mesh": {"axes": [["x", 2], ["y", 4]], "axis_types": ["Auto", "Explicit"],
              "devices": [{"platform": "cpu", "ids": "0..7"}]},
     "spec": {"partitions": [["x", "y"], null, {"unconstrained": true}]},
     "memory_kind": "device"}

``class`` and ``version`` stand in every state, and in front. The version is that of the whole
schema; it changes when a reader of the old one would go wrong. Keys in brackets may be missing.

=========================  =========================================================================
class                      keys
=========================  =========================================================================
``Mesh``                   ``axes``: pairs of name and size, major to minor; ``axis_types``: a name
                           of ``jax.sharding.AxisType`` for each; [``devices``]: in mesh order, the
                           last axis fastest; [``abstract_device``]: what JAX's ``AbstractMesh``
                           says of the device to come (``device_kind``, ``num_cores``,
                           ``platform``)
``PartitionSpec``          ``partitions``: for each dimension ``null``, a name, a list of names, or
                           ``{"unconstrained": true}``; [``unreduced``], [``reduced``]: names;
                           [``unreduced_kind``]: ``"max"`` or ``"min"``; a sum if left out
``NamedSharding``          ``mesh`` and ``spec``: as above, without class and version;
                           [``memory_kind``]; [``logical_device_ids``]
``SingleDeviceSharding``   ``devices``: the one; [``memory_kind``]
``GSPMDSharding``          ``devices``: in the order in which the tiles number them;
                           ``op_sharding``: XLA's text; [``memory_kind``]
``PositionalSharding``     ``devices``: in the order in which they were given; ``shape``: of the
                           places; ``held``: which of the devices (0 is the first) are in them, as
                           ids, place after place in row-major order; [``memory_kind``]
``PmapSharding``           ``devices``: in row-major order; ``shape``: of their array;
                           ``sharding``: for each dimension ``null``, ``{"chunked": [4]}`` or
                           ``{"unstacked": 4}``; ``mesh_mapping``: for each dimension of the mesh
                           ``{"sharded_axis": 0}`` or ``{"replicated": 2}``; [``memory_kind``]
=========================  =========================================================================

*Devices* are a list of stretches of one platform, mostly one: ``{"platform": "cpu", "ids":
"0..7"}``. *Ids* are a text of runs, in the order that counts: ``0..7``, ``7..0``, ``0..12 by 4,
1..13 by 4``, ``3, 5``. A mesh without devices says nothing of them, however large it is.

How a class joins
-----------------
It is decorated with :func:`persistent`, which enters it under its name and gives it ``__reduce__``,
``__copy__`` and ``__deepcopy__``. (An instance of a subclass is saved as one of the class.)

It *gives* ``_saved_state(self)``: its part of the state: JSON values, enough to build it again.
It *takes* ``_from_saved(cls, saved)``: the inverse, from a
:class:`~shardpass.sharding.saved.Saved`, through which every value is read, so that faults are told
with their place. A sharding of numbered devices has both from
:mod:`shardpass.sharding.device_free`. Either way it gets a row in the table above.
"""

from __future__ import annotations

import importlib
import json
import reprlib
from typing import Any, Final, Protocol, SupportsIndex, TypeVar, runtime_checkable

import jax

from shardpass.diagnostics import Excerpt, ShardingError
from shardpass.sharding.saved import Saved

VERSION: Final = 1
"""Of the schema that is written; it alone is read."""

_PLACE: Final = "saved state"
_HEAD: Final = ("class", "version")


@runtime_checkable
class Saveable(Protocol):
    """What a value has to have to be saved."""

    @property
    def _saved_as(self) -> str:
        """The name of the class that reads it."""
        ...

    def _saved_state(self) -> dict[str, Any]:
        """The state but for class and version: JSON values."""
        ...


class Persistent(Saveable, Protocol):
    """What a class has to have for :func:`persistent`, but for the name, which that adds."""

    @classmethod
    def _from_saved(cls, saved: Saved) -> Any:
        """The inverse, live where all the devices are here, else device-free.

        Raises:
          ShardingError: ``bad-state``, or what the constructor refuses, with the place.
        """
        ...


C = TypeVar("C", bound=type[Any])

_classes: dict[str, type[Any]] = {}
# Where classes are entered that :mod:`shardpass.sharding` loads only when they are asked for.
_LOADED_LATER: Final = ("gspmd", "pmap", "positional")


def persistent(joining: C) -> C:
    """Enter a class, a :class:`Persistent`, under its name; else as :func:`kept_by_state`."""
    _classes[joining.__name__] = joining
    joining._saved_as = joining.__name__
    return kept_by_state(joining)


def kept_by_state(joining: C) -> C:
    """Let ``copy`` and ``pickle`` know what to do with a class of :class:`Saveable` values."""
    members: dict[str, Any] = {
        "__reduce__": _reduce,
        "__reduce_ex__": _reduce,
        "__copy__": _itself,
        "__deepcopy__": _itself,
    }
    for name, member in members.items():
        setattr(joining, name, member)
    return joining


def class_named(name: str) -> type[Any]:
    """The class that was entered under ``name``."""
    return _all_classes()[name]


def _all_classes() -> dict[str, type[Any]]:
    for module in _LOADED_LATER:
        importlib.import_module(f"shardpass.sharding.{module}")
    return _classes


def state_of(value: Saveable) -> dict[str, Any]:
    """The whole state of ``value``, class and version in front."""
    return {"class": value._saved_as, "version": VERSION, **value._saved_state()}


def _reduce(self: Saveable, protocol: SupportsIndex = 2, /) -> tuple[Any, ...]:
    return (restore, (state_of(self),))


def _itself(self: Any, memo: object = None, /) -> Any:
    return self


def restore(state: Any) -> Any:
    """What a state was made of: a mesh, a spec or a sharding, live or device-free.

    Every pickle of this package names this function; it stays where it is.

    Raises:
      ShardingError: ``bad-state`` for a state that is damaged, of an unknown class or of another
        version, and for axis types and kinds of reduction that the installed JAX lacks;
        ``memory-kind`` and what else the constructors refuse. The message names the place.
    """
    if type(state) is not dict:
        raise Saved(state, _PLACE).error(f"an object is needed, not {type(state).__name__}")
    head: list[Saved] = []
    for key in _HEAD:
        if key not in state:
            raise Saved(state, _PLACE).error(
                f"the key {key!r} is missing", help="to_json and pickle write it"
            )
        head.append(Saved(state[key], f"{_PLACE}.{key}"))
    name, version = head
    if version.whole() != VERSION:
        raise version.error(
            f"version {reprlib.repr(version.value)} is unknown, this shardpass reads {VERSION}",
            help="load it with the shardpass that saved it, or a newer one",
        )
    found = name.one_of(_all_classes(), "class", "shardpass")
    rest = {key: value for key, value in state.items() if key not in _HEAD}
    return found._from_saved(Saved(rest, name.value))


def to_json(value: Any) -> str:
    """``value`` as one line of JSON, for people and programs; see the module for the schema.

    Args:
      value: a mesh, a spec or a sharding, ours or JAX's, with devices or without.

    Raises:
      ShardingError: ``abstract-type`` for anything else.
    """
    ours = value if isinstance(value, Saveable) else _ours(value)
    return json.dumps(state_of(ours), ensure_ascii=False)


def from_json(text: str) -> Any:
    """What :func:`to_json` wrote; live where all its devices are here, else device-free.

    Raises:
      ShardingError: ``bad-state`` for text that is no JSON, with the line; as :func:`restore`.
        ``abstract-type`` for what is no text.
    """
    if not isinstance(text, str):
        raise ShardingError(
            "abstract-type",
            f"JSON text is needed, not {type(text).__name__}",
            help="read the file as text",
        )
    try:
        state = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ShardingError(
            "bad-state",
            f"line {error.lineno}, column {error.colno}: no JSON: {error.msg}",
            excerpt=Excerpt.at(text, error.pos),
        ) from None
    except RecursionError:
        raise ShardingError("bad-state", "no saved state is nested so deeply") from None
    except ValueError as error:
        if isinstance(error, ShardingError):
            raise
        # A number of more digits than Python reads.
        raise ShardingError("bad-state", f"no saved state: {error}") from None
    return restore(state)


def _ours(value: Any) -> Saveable:
    """One of JAX's own classes as the one of ours that takes it by ``from_jax``."""
    from jax.extend import sharding as jax_extend  # Loads Pallas, which takes long.

    for theirs, name in (
        (jax.sharding.AbstractMesh, "Mesh"),
        (jax.sharding.Mesh, "Mesh"),
        (jax.sharding.PartitionSpec, "PartitionSpec"),
        (jax.sharding.NamedSharding, "NamedSharding"),
        (jax.sharding.SingleDeviceSharding, "SingleDeviceSharding"),
        (jax_extend.GSPMDSharding, "GSPMDSharding"),
    ):
        if isinstance(value, theirs):
            return class_named(name).from_jax(value)
    raise ShardingError(
        "abstract-type",
        f"a {type(value).__name__} is not saved as JSON: {reprlib.repr(value)}",
        help=f"give one of {', '.join(sorted(_all_classes()))}, of shardpass.sharding or of JAX",
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ShardingError("bad-state", f"{_PLACE}: the key {twice!r} stands twice in one object")
    return found
