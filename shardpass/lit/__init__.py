"""A kit for lit suites that test sharding passes with ``shardpass opt`` and ``filecheck``.

It needs two packages that shardpass does without: ``pip install 'shardpass[lit]'``. A suite is a
folder of tests with a ``lit.cfg.py`` of three lines::

    import shardpass.lit

    shardpass.lit.configure(config, lit_config, devices=8)

and a test is a module with lines that say what to run and what to find in the output::

    // RUN: %shardpass opt %s --sp-strip | %filecheck %s

``lit FOLDER`` runs the tests. ``shardpass lit-lint FOLDER`` finds those that check less than they
seem to, and with ``--prove`` those that pass with their passes off as well:

* :mod:`~shardpass.lit.config` configures a suite;
* :mod:`~shardpass.lit.script` reads the RUN lines of a test;
* :mod:`~shardpass.lit.directives` and :mod:`~shardpass.lit.lint` find what nobody reads and what
  nobody checks;
* :mod:`~shardpass.lit.discovery` asks lit which tests there are;
* :mod:`~shardpass.lit.passes_off` takes a pass off a command line, :mod:`~shardpass.lit.switch`
  runs one so while :mod:`~shardpass.lit.prove` waits for the tests to fail.

Nothing here imports jax; only the command line imports this.
"""

from shardpass.lit.config import configure

__all__ = ["configure"]
