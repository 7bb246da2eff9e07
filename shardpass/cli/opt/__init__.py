"""``shardpass opt``: an mlir-opt with our passes beside the native ones.

The words are read into a request (:mod:`words <shardpass.cli.opt.words>`,
:mod:`command <shardpass.cli.opt.command>`); :mod:`files <shardpass.cli.opt.files>` takes each file
through a child process, again where a part of it killed one, and keeps what failed; in the child
:mod:`work <shardpass.cli.opt.work>` parses, runs and prints.
"""

from shardpass.cli.opt.command import opt

__all__ = ["opt"]
