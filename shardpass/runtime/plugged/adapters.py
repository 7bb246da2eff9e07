"""Names for arguments that a library hides from JAX.

``flax.nnx.jit`` and ``equinox.filter_jit`` take the user's objects apart before they call
``jax.jit``: JAX sees ``m.states[0][3]`` and ``dynamic_nodonate['first'][0]``, and so would rules.
Both are callables with a class of their own, whose instances are handed the user's arguments. When
the hook is called, that call is still going on: among its callers is a method of such an instance,
and what it was handed is taken apart once more, by the library's public functions, with names.

Only what is lowered costs anything, nothing is put into the libraries, and functions that were
decorated before the block have names as well. Where a library has changed so that the names that
JAX sees are not among those that come out, they stay, and the report says that they are hidden.
"""

from __future__ import annotations

import inspect
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Final

import jax

from shardpass.compat import jit_lowering
from shardpass.runtime.lowering.calls import Call, callers

#: What a name has in it that is a library's.
_NNX: Final = ".states["
#: What ``nnx.jit(graph_updates=False)`` puts into names that are the user's otherwise.
_NNX_STATE: Final = ".__state__"
_EQUINOX: Final = ("dynamic_nodonate[", "dynamic_donate[")


#: The user's functions that were looked up last, by their names.
_latest: Final[weakref.WeakValueDictionary[str, Any]] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Names:
    """The user's names for a function's arguments.

    Attributes:
      by_raw: JAX's name -> the user's, both as Python would write them.
      source: who told them.
      hidden: names of JAX's that stay, and that no user knows.
    """

    by_raw: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Adapter:
    """What is known of one library.

    Attributes:
      source: the function that the user decorates with.
      module: the module that is loaded where that is used.
      hides: whether a name is one of the library's.
      kinds: the classes of what the function returns.
      names: the names for what an instance was called with.
    """

    source: str
    module: str
    hides: Callable[[str], bool]
    kinds: Callable[[], tuple[type, ...]]
    names: Callable[[Any, tuple[Any, ...], dict[str, Any]], Iterator[tuple[str, str]]]


def written_by_user(call: Call) -> Call:
    """``call`` with the user's function, where JAX sees one of a library's around it.

    A piece of a derivative that runs backwards is called from nowhere in the library; the one that
    runs forwards has been, just before.
    """
    file, _ = jit_lowering.written_in(call.jaxpr)
    for adapter in _ADAPTERS:
        library = sys.modules.get(adapter.module)
        folder = os.path.dirname(getattr(library, "__file__", None) or "")
        if library is None or file is None or not file.startswith(folder + os.sep):
            continue
        try:
            frame = _frame_of(adapter)
            if frame is not None:
                function = inspect.unwrap(_instance(frame))
                _latest[call.name] = function
                return replace(call, function=function)
        except Exception:  # As below.
            return call
        return replace(call, function=_latest.get(call.name)) if call.is_piece else call
    return call


def names_for(call: Call) -> Names:
    """The user's names for the arguments of ``call``, as far as they are hidden."""
    seen = jit_lowering.argument_names(call.jaxpr) or ()
    for adapter in _ADAPTERS:
        hidden = [name for name in seen if adapter.hides(name)]
        if not hidden or adapter.module not in sys.modules:
            continue
        try:
            found = dict(_told(adapter))
        except Exception:  # A library of another version: a name less is no reason not to compile.
            found = {}
        by_raw = {name: found[name] for name in hidden if name in found}
        left = tuple(name for name in hidden if name not in found)
        return Names(by_raw, adapter.source if by_raw else None, left)
    return Names({name: name.replace(_NNX_STATE, "") for name in seen if _NNX_STATE in name})


def _told(adapter: _Adapter) -> Iterator[tuple[str, str]]:
    frame = _frame_of(adapter)
    if frame is not None:
        _, varargs, keywords, values = inspect.getargvalues(frame)
        yield from adapter.names(_instance(frame), values[varargs or ""], values[keywords or ""])


def _frame_of(adapter: _Adapter) -> FrameType | None:
    """The innermost call of a method of an instance that takes any arguments."""
    kinds = adapter.kinds()
    takes_any = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    for frame in callers():
        if frame.f_code.co_flags & takes_any == takes_any and isinstance(_instance(frame), kinds):
            return frame
    return None


def _instance(frame: FrameType) -> Any:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def _by_parameter(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Each argument under the name that JAX has for it: ``x``, or ``xs[0]`` of ``*xs``."""
    parameters = list(inspect.signature(function).parameters.values())
    by_place = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    for place, value in enumerate(args):
        more = place - len(by_place)
        yield (by_place[place] if more < 0 else f"{rest}[{more}]"), value
    takes_any = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
    known = {p.name for p in parameters}
    for name, value in kwargs.items():
        yield (name if name in known else f"{takes_any}[{name!r}]"), value


# Flax NNX.


def _nnx_kinds() -> tuple[type, ...]:
    from flax import nnx

    return (type(nnx.jit(lambda: None)),)


def _nnx_names(
    wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    from flax import nnx

    def is_node(value: Any) -> bool:
        return isinstance(value, nnx.Variable) or nnx.graph.is_graph_node(value)

    # One context for all arguments, as a variable that several share is a leaf of the first alone.
    with nnx.split_context() as context:
        for parameter, value in _by_parameter(wrapped.fun, args, kwargs):
            leaves, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=is_node)
            for path, leaf in leaves:
                if not is_node(leaf):
                    continue
                name = f"{parameter}{jax.tree_util.keystr(path)}"
                _, state = context.flatten(leaf)
                for place, keys in enumerate(state.paths):
                    yield f"{name}.states[0][{place}]", name + "".join(_step(key) for key in keys)


# Equinox.


def _equinox_kinds() -> tuple[type, ...]:
    import equinox

    return (type(equinox.filter_jit(lambda: None)),)


def _equinox_names(
    wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    import equinox

    bound = inspect.signature(wrapped.__wrapped__).bind(*args, **kwargs)
    named = list(_by_parameter(wrapped.__wrapped__, bound.args, bound.kwargs))
    for group, members in (
        ("fun", [("fun", wrapped.__wrapped__)]),
        ("first", named[: 1 if bound.args else 0]),
        ("rest", named[1 if bound.args else 0 :]),
    ):
        place = 0
        for parameter, value in members:
            for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
                if equinox.is_array(leaf):
                    for donated in _EQUINOX:
                        name = f"{parameter}{jax.tree_util.keystr(path)}"
                        yield f"{donated}'{group}'][{place}]", name
                place += 1  # What is no array has its place, too.


def _step(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


_ADAPTERS: Final = (
    _Adapter("flax.nnx.jit", "flax.nnx", lambda name: _NNX in name, _nnx_kinds, _nnx_names),
    _Adapter(
        "equinox.filter_jit",
        "equinox",
        lambda name: name.startswith(_EQUINOX),
        _equinox_kinds,
        _equinox_names,
    ),
)
