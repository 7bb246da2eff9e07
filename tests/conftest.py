"""What every test sees: eight CPU devices, and stacks of their own; set before jax is imported."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
_FLAG = "--xla_force_host_platform_device_count=8"
if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}".strip()
# Of the stack that JAX writes into locations, the frames of tests and of pytest. Those below are
# pytest-xdist's, and one of them starts in column 0, which MLIR bytecode does not keep.
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "5"
