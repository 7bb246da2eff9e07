"""What a process tells its supervisor beside its steps.

Steps are for people. These are told the same way, and say what it means that a process computes
nothing.
"""

from __future__ import annotations

from typing import Final

#: It has something to do by itself.
APART: Final = "\0apart"
#: It waits for others, which may have something to do.
WAITING: Final = "\0waiting"
#: It is in a program that all processes run: who computes nothing there waits in a collective, and
#: who computes is waited for. On CPUs alone, since an accelerator computes without its process.
TOGETHER: Final = "\0together"

PHASES: Final = (APART, WAITING, TOGETHER)
