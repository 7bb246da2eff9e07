"""``shardpass.jit`` and what it returns."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardpass.compat.jit_cache import known_calls
from shardpass.diagnostics import Diagnostic, Severity, ShardingError
from shardpass.partition_rules import PartitionRules
from shardpass.report import build_report
from shardpass.runtime.jitted.ahead import Lowered, Traced
from shardpass.runtime.jitted.form import Form
from shardpass.runtime.jitted.planning import Plan, Plans
from shardpass.runtime.jitted.policy import Policy, fixed
from shardpass.runtime.jitted.rewritten import is_possible
from shardpass.runtime.jitted.settings import Settings
from shardpass.runtime.jitted.signature import Arrangement, Chosen, Names, Numbers
from shardpass.runtime.jitted.telling import show


@dataclass(frozen=True, eq=False)
class Family:
    """One function under all the rules that it was asked for with.

    Attributes:
      made: makes it, from rules.
      known: what was made, by rules.
    """

    made: Callable[[PartitionRules | None, Family], JitFunction]
    known: dict[PartitionRules | None, JitFunction] = field(default_factory=dict)

    def under(self, rules: PartitionRules | None) -> JitFunction:
        """The function under ``rules``."""
        found = self.known.get(rules)
        if found is None:
            found = self.known[rules] = self.made(rules, self)
        return found


class JitFunction:
    """A function that is compiled by ``jax.jit`` with the shardings of a plan.

    It is called, and transformed, as what ``jax.jit`` returns.
    """

    def __init__(self, settings: Settings, family: Family) -> None:
        self._settings = settings
        self._family = family
        self._forms: dict[Any, Form] = {}
        functools.update_wrapper(self, settings.function)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function, as ``jax.jit`` would, with its arguments placed by the plan."""
        if kwargs:
            form, args = self._arranged(args, kwargs)
        else:
            form = self._forms.get(len(args)) or self._form(len(args), ())
        try:
            found = form.current(*args)
            if known_calls(form.program) != form.checked_calls:
                form.check(args)
            return found
        except ShardingError:
            raise
        except ValueError as error:
            stopped = error  # By the user's function, or by something to be done for this call.
        except RuntimeError as error:
            form.refuse_deleted(error, args)
            raise
        return form.go_on(stopped, *args)

    def trace(self, /, *args: Any, **kwargs: Any) -> Traced:
        """Trace it for arguments of those kinds; shapes will do."""
        form, args = self._arranged(args, kwargs)
        found = form.apply(lambda program, given: program.trace(*given), args)
        return Traced(found, self._settings.policy.has_devices, form.arranged, form.active)

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """Lower it for arguments of those kinds; shapes will do."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, /, *args: Any, **kwargs: Any) -> Any:
        """The kinds of its results; see ``jax.eval_shape``."""
        return self.trace(*args, **kwargs).out_info

    def with_rules(self, rules: Any) -> JitFunction:
        """The same function under other rules.

        Asked again for rules of the same content it is the same object, with all that it has
        compiled, so that rules may change from step to step and back.

        Raises:
          ShardingError: what is wrong with the rules.
        """
        return self._family.under(self._settings.policy.read(rules))

    def clear_cache(self) -> None:
        """Forget every plan and every compiled program."""
        self._forms.clear()

    def apply(
        self,
        do: Callable[[Any, tuple[Any, ...]], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """What ``do`` makes of the ``jax.jit`` that a call goes to, and of all its arguments by
        position: those with a name stand behind the others, in alphabetical order.
        """
        form, args = self._arranged(args, kwargs)
        return form.apply(do, args)

    def arranged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arrangement:
        """How the arguments of such a call come, static ones apart."""
        return self._arranged(args, kwargs)[0].arranged

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: with the instance for the first argument."""
        return self if instance is None else types.MethodType(self, instance)

    def _arranged(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Form, tuple[Any, ...]]:
        names = tuple(sorted(kwargs))
        return self._form(len(args), names), (*args, *(kwargs[name] for name in names))

    def _form(self, count: int, names: tuple[str, ...]) -> Form:
        key = (count, names) if names else count
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = Form(self._settings, count, names)
        return found


def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    mesh: Any,
    rules: Any = None,
    pipeline: Any = None,
    report: bool = False,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: Numbers = None,
    static_argnames: Names = None,
    donate_argnums: Numbers = None,
    donate_argnames: Names = None,
    keep_unused: bool = False,
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """``jax.jit`` with the shardings that rules and passes find.

    Args:
      function: the function; without it, a decorator is returned.
      mesh: a mesh of JAX's or ours, or a mapping from axis name to size, which stands for one of
        JAX's devices, those of all processes, with ``Auto`` axes.
      rules: a list of ``(regex, PartitionSpec)``, a ``PartitionRules``, or the path of a TOML
        file. Paths are spelt as in modules: the argument's name and the keys, joined by dots.
      pipeline: the passes, as :func:`shardpass.run_pipeline` takes them; ``sp-annotate`` (where
        there are rules) and ``sp-propagate`` by default.
      report: print each plan when it is first used.
      in_shardings: as for ``jax.jit``, with a bare ``PartitionSpec`` meaning one on ``mesh`` and
        ``None`` where the plan decides. For arguments that are passed by position.
      out_shardings: the same for the results.
      static_argnums: as for ``jax.jit``.
      static_argnames: as for ``jax.jit``.
      donate_argnums: as for ``jax.jit``.
      donate_argnames: as for ``jax.jit``.
      keep_unused: as for ``jax.jit``.
      inline: as for ``jax.jit``.
      compiler_options: as for ``jax.jit``.

    Raises:
      ShardingError: what is wrong with the mesh, the rules or the pipeline; when the function is
        called, what the passes report.
    """
    if function is None:
        options = {name: value for name, value in locals().items() if name != "function"}
        return functools.partial(jit, **options)
    if not callable(function):
        raise ShardingError(
            "abstract-type",
            f"jit takes a function, not {function!r} of type {type(function).__name__}",
        )
    options = {"keep_unused": keep_unused, "inline": inline, "compiler_options": compiler_options}
    wanted = Policy.of(mesh, rules, pipeline)
    static = Chosen.of(function, static_argnums, static_argnames, "static_argnames")
    donated = Chosen.of(function, donate_argnums, donate_argnames, "donate_argnames")
    placed_in = fixed(in_shardings, wanted, "in_shardings")
    placed_out = fixed(out_shardings, wanted, "out_shardings")

    def made(rules: PartitionRules | None, family: Family) -> JitFunction:
        policy = Policy.of(wanted.mesh, rules, pipeline)
        settings = Settings(
            function,
            policy,
            Plans(policy),
            Plans(policy.by_rules_alone()),
            placed_in,
            placed_out,
            static,
            donated,
            pipeline is not None,
            options,
            lambda told, plan: _tell(told, plan, report),
            rewrites=not policy.is_built_in and is_possible(),
        )
        return JitFunction(settings, family)

    return Family(made).under(wanted.rules)


def _not_rewritten(passes: Sequence[str]) -> str:
    return str(
        Diagnostic(
            Severity.WARNING,
            "not-bound",
            f"what the function computes is not changed, as {', '.join(passes)} would have it: "
            "here layouts alone are bound",
            help="call it by itself, outside of other transformations; on a JAX that plugin mode "
            "does not know, change the function",
        )
    )


def _tell(settings: Settings, plan: Plan, report: bool) -> None:
    if report:
        show(build_report(plan.module))
    if plan.rewriting and not settings.rewrites:
        settings.say_once("rewriting", lambda: _not_rewritten(plan.rewriting))
    for diagnostic in plan.diagnostics:
        # Not every argument needs a rule: propagation decides, and warns of what it leaves whole.
        if diagnostic.severity is Severity.WARNING and diagnostic.slug != "unmatched":
            settings.say_once(diagnostic.message, lambda told=diagnostic: str(told))
