"""What every test sees: eight CPU devices, stacks and signals of their own, no wish about colors.

All is set before jax is imported.
"""

import os
import signal

# What a person may have set for terminals; tests that are about colors set them themselves.
for _name in ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)
os.environ["JAX_PLATFORMS"] = "cpu"
_FLAG = "--xla_force_host_platform_device_count=8"
if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}".strip()
# Of the stack that JAX writes into locations, the frames of tests and of pytest. Those below are
# pytest-xdist's, and one of them starts in column 0, which MLIR bytecode does not keep.
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "5"
# A shell starts what it puts in the background deaf to interrupts, nohup to hang-ups, and that is
# inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
