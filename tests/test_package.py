"""The package's front: every name there, none of them fetched before it is asked for."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import shardpass


def run(code):
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


@pytest.mark.parametrize("name", shardpass.__all__)
def test_every_name_is_there(name):
    value = getattr(shardpass, name)
    assert value is not None
    assert name in dir(shardpass)
    assert vars(shardpass)[name] is value


def test_every_name_has_a_layer():
    assert sorted(shardpass.__all__) == sorted(shardpass._LAYER_OF)


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="NoSuchSharding"):
        _ = shardpass.NoSuchSharding


@pytest.mark.parametrize(
    "code",
    [
        "import shardpass",
        "import shardpass.diagnostics",
        "import shardpass.canon",
        "import shardpass; shardpass.ShardingError; shardpass.MeshShape; shardpass.TensorSharding",
    ],
)
def test_runs_without_jax(code):
    heavy = ("jax", "jaxlib", "rich", "click")
    assert run(f"import sys; {code}; print(*(m for m in {heavy} if m in sys.modules))") == []


def test_the_package_itself_needs_the_standard_library_alone():
    assert run("import sys, shardpass; print('numpy' in sys.modules)") == ["False"]


def test_the_usual_objects_load_neither_pallas_nor_the_rarer_classes():
    # ``jax.extend`` imports Pallas.
    late = ("jax.extend", "shardpass.sharding.gspmd", "shardpass.sharding.pmap")
    code = "import sys, shardpass; shardpass.NamedSharding; shardpass.SingleDeviceSharding"
    assert run(f"{code}; print(*(m for m in {late} if m in sys.modules))") == []


def test_importing_the_objects_starts_no_backend():
    code = (
        "import shardpass; shardpass.NamedSharding; shardpass.Mesh.of(data=2);"
        "from jax._src.xla_bridge import backends_are_initialized as started; print(started())"
    )
    assert run(code) == ["False"]


def test_version():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    assert shardpass.__version__ == project["project"]["version"]
