"""Passes of Shardy, named on a command line, do what jaxlib's own pass manager does with them.

On modules of every make: with an entry and without one, of one function and of several. Where the
pass manager alone dies, ours may do better.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bare_opt import pipeline_of

PROJECT = Path(__file__).resolve().parent.parent.parent

# The passes run in processes forked behind the imports, since some die.
COMPARE = r'''
import json, os, sys
from jax.extend.mlir import ir, passmanager
from bare_opt import pipeline_of
from shardpass.diagnostics import ShardingError
from shardpass.mlir import load, native
from shardpass.mlir.context import make_context
from shardpass.passes import run_pipeline

TENSOR = "tensor<8x8xf32>"
SHARDED = "{sdy.sharding = #sdy.sharding<@mesh, [{\"x\", ?}, {?}]>}"
ADD = f"%r = stablehlo.add %a, %b : {TENSOR}"
CALL = f"%r = func.call @bar(%a, %b) : ({TENSOR}, {TENSOR}) -> {TENSOR}"

def function(name, body=ADD):
    return (f"func.func {name}(%a: {TENSOR} {SHARDED}, %b: {TENSOR}) -> {TENSOR} "
            f"{{ {body}\n return %r : {TENSOR} }}\n")

MODULES = [
    function("@foo"),
    function("private @foo"),
    function("@foo") + function("@baz"),
    function("@foo", CALL) + function("@bar"),
    function("@foo", CALL) + function("private @bar"),
    function("@main", CALL) + function("private @bar"),
]

def bare(text, name):
    with make_context():
        module = ir.Module.parse(text)
        passmanager.PassManager.parse(pipeline_of([name])).run(module.operation)
        return str(module)

def ours(text, name):
    return str(run_pipeline(load(text), name, needs_entry=False).module.ir)

def outcomes(run, text):
    """What ``run`` gives for each pass; a child goes on until one kills it."""
    found, left = {}, list(names)
    while left:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(writer, "w") as pipe:
                for name in left:
                    try:
                        said = run(text, name)
                    except (ShardingError, ir.MLIRError):
                        said = "refused"
                    print(json.dumps([name, said]), file=pipe, flush=True)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            found.update(json.loads(line) for line in pipe)
        if os.waitpid(child, 0)[1]:
            found[next(name for name in left if name not in found)] = "died"
        left = [name for name in left if name not in found]
    return found

native.register()
names = [n for n in native.NATIVE_PASSES if n.startswith("sdy-") and native.anchor(n)]
different, died = [], 0
for number, functions in enumerate(MODULES):
    text = "sdy.mesh @mesh = <[\"x\"=2]>\n" + functions
    alone, with_us = outcomes(bare, text), outcomes(ours, text)
    died += sum(said == "died" for said in alone.values())
    different += [(number, n) for n in names if alone[n] not in ("died", with_us[n])]
print(json.dumps({"passes": len(names), "died": died, "different": different}))
'''


def test_a_pass_of_shardy_does_what_it_does_without_us():
    path = os.pathsep.join([str(PROJECT), str(PROJECT / "tools")])
    run = subprocess.run(
        [sys.executable, "-c", COMPARE],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["different"] == []
    # Both jaxlibs have dozens of passes, and on few of the six modules one dies.
    assert found["passes"] > 20
    assert found["died"] < found["passes"]


def test_the_bare_pipeline_nests_passes_and_knows_no_others():
    flags = ["-canonicalize", "--sdy-basic-propagate=keep-sharding-rules=true"]
    assert pipeline_of(flags) == (
        "builtin.module(canonicalize,sdy-basic-propagate{keep-sharding-rules=true})"
    )
    assert (
        pipeline_of(["--sdy-reshard-to-collectives"])
        == "builtin.module(func.func(sdy-reshard-to-collectives))"
    )
    with pytest.raises(ValueError, match="no pass of this jaxlib: --verify-diagnostics"):
        pipeline_of(["--verify-diagnostics"])
