"""The command line: a thin caller of the Python API.

A command reads its arguments, calls ``load``, ``run_pipeline``, ``save`` or ``check``, and prints
what comes back. The front (``--help``, wrong usage) imports nothing but click. The work runs in a
child process (:mod:`shardpass.cli.guard`), so that whatever a foreign module does to XLA or to a
native pass, the person at the terminal reads one message.

Results go to standard output, everything about them to standard error.

Exit codes: 0, it worked; 1, the input is at fault, or the check failed; 2, the command line cannot
be understood; 3, the process that did the work died, or shardpass itself is at fault.
"""
