"""A suite's configuration: features, substitutions, environment, and what is missing."""

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import shardpass.lit
from shardpass.diagnostics import ShardingError
from shardpass.lit.config import PROVE, version_features
from shardpass.lit.discovery import find_tests

PROJECT = Path(__file__).resolve().parents[2]


class FatalError(Exception):
    """What lit does at ``lit_config.fatal``."""


def configured(root: Path, params: dict[str, str] | None = None, **options: Any) -> Any:
    config = SimpleNamespace(available_features=set(), substitutions=[], environment={"PATH": "p"})

    def fatal(message: str):
        raise FatalError(message)

    lit_config = SimpleNamespace(params=params or {}, fatal=fatal)
    shardpass.lit.configure(config, lit_config, root=root, **options)
    return config


def test_versions_become_features():
    assert version_features("jax", "0.2.5") == {"jax-0.2", "jax-0.0+", "jax-0.1+", "jax-0.2+"}
    newer = version_features("jax", "1.0.0rc1")
    assert {"jax-1.0", "jax-1.0+", "jax-0.10+", "jax-0.12+"} <= newer
    assert not {"jax-1.1+", "jax-0.10"} & newer
    assert version_features("jax", "unknown") == set()


def test_a_suite_has_all_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", "mine")
    config = configured(tmp_path, devices=4)
    assert config.name == tmp_path.name
    assert config.test_source_root == str(tmp_path.resolve())
    assert config.test_exec_root == str(tmp_path.resolve() / "Output")
    assert config.suffixes == [".mlir", ".test"]
    assert config.excludes == ["Inputs"]
    assert dict(config.substitutions) == {
        r"%shardpass\b": f"{sys.executable} -m shardpass",
        r"%filecheck\b": f"{sys.executable} -m filecheck",
        r"%devices\b": "4",
    }
    assert f"python-{sys.version_info.major}.{sys.version_info.minor}" in config.available_features
    assert "jax-0.10+" in config.available_features
    environment = config.environment
    assert environment["PATH"] == "p"
    assert environment["JAX_PLATFORMS"] == "cpu"
    assert environment["XLA_FLAGS"] == "--xla_force_host_platform_device_count=4"
    assert environment["PYTHONPATH"].split(os.pathsep)[-1] == os.path.abspath("mine")


def test_names_and_folders_can_be_said(tmp_path: Path):
    config = configured(
        tmp_path, name="mine", suffixes=[".hlo"], excludes=["data"], exec_root=tmp_path / "out"
    )
    assert (config.name, config.suffixes, config.excludes) == ("mine", [".hlo"], ["data"])
    assert config.test_exec_root == str(tmp_path.resolve() / "out")


def test_paths_with_spaces_come_quoted(tmp_path: Path):
    root = tmp_path / "a suite"
    root.mkdir()
    added = dict(configured(root, exec_root=tmp_path / "out").substitutions)
    assert added[r"%s(?![A-Za-z_])"] == "'%/s'"
    assert added[r"%S(?![A-Za-z_])"] == "'%/S'"
    assert r"%t(?![A-Za-z_])" not in added


def test_a_proof_switches_passes_off_and_writes_elsewhere(tmp_path: Path):
    config = configured(tmp_path, {PROVE: str(tmp_path / "proof")} | _made(tmp_path / "proof"))
    assert "shardpass.lit.switch" in dict(config.substitutions)[r"%shardpass\b"]
    assert config.test_exec_root == str(tmp_path / "proof" / "scratch")
    assert (tmp_path / "proof" / "configured").exists()


def _made(folder: Path) -> dict[str, str]:
    folder.mkdir()
    return {}


def test_a_suite_without_devices_is_refused(tmp_path: Path):
    with pytest.raises(FatalError, match="devices=0, and a test needs one at least"):
        configured(tmp_path, devices=0)


@pytest.fixture(params=["lit", "filecheck"])
def missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == request.param else find_spec(name),
    )
    return request.param


def test_what_is_not_installed_is_named(missing: str, tmp_path: Path):
    with pytest.raises(ShardingError, match=f"the package {missing} is not installed") as caught:
        find_tests([tmp_path])
    assert caught.value.slug == "missing-package"
    assert caught.value.diagnostic.help == "pip install 'shardpass[lit]'"
    if missing == "filecheck":  # The configuration is run by lit.
        with pytest.raises(FatalError, match=r"package filecheck: pip install 'shardpass\[lit\]'"):
            configured(tmp_path)


def test_lit_says_which_tests_there_are(tmp_path: Path):
    found = find_tests([PROJECT / "examples" / "lit_suite"])
    assert [test.name for test in found] == [
        f"lit_suite :: {name}"
        for name in ("plan.mlir", "run.test", "strip.mlir", "verify-errors.mlir")
    ]
    assert all(test.path.is_file() for test in found)
    (one,) = find_tests([PROJECT / "examples" / "lit_suite" / "strip.mlir"])
    assert one == found[2]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (None, "did not discover any tests"),
        ("raise RuntimeError('broken')\n", "RuntimeError: broken"),
        ("import shardpass.lit\nshardpass.lit.configure(config, lit_config)\n", "no tests"),
    ],
)
def test_a_folder_in_which_lit_finds_nothing(config: str | None, said: str, tmp_path: Path):
    if config:
        (tmp_path / "lit.cfg.py").write_text(config)
    with pytest.raises(ShardingError) as caught:
        find_tests([tmp_path])
    assert caught.value.slug == "no-tests"
    assert said in "\n".join(caught.value.diagnostic.notes)
