"""``shardpass run-script``: a script in plugin mode, whose output and end are its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cli.conftest import PROJECT, Run

RULES = """\
[mesh]
data = 2
model = 4

[[rule]]
match = '^batch$'
spec = ["data"]

[[rule]]
match = '^w$'
spec = [[], "model"]
"""

STEP = """\
import sys

import jax
import jax.numpy as jnp
import numpy as np

@jax.jit
def step(w, batch):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((batch @ w) ** 2))(w)

def train(rows=8):
    w = np.ones((16, 8), np.float32)
    for _ in range(2):
        w = step(w, np.ones((rows, 16), np.float32))
    return w
"""
#: Starts no JAX: most of what a script may do needs none.
PLAIN = "import sys\n"


@pytest.fixture
def script(folder: Path):
    """Puts ``train.py`` beside ``r.toml``."""
    (folder / "r.toml").write_text(RULES)

    def write(text: str, before: str = STEP) -> None:
        (folder / "train.py").write_text(before + textwrap.dedent(text))

    return write


def test_a_script_compiles_with_the_plan(script, folder: Path, shardpass: Run):
    script(
        """
        w = train()
        print(w.sharding.spec, w[0, 0], jax.device_count())
        print(__name__, __file__, sys.argv, "shardpass" in sys.path[0])
        """
    )
    done = shardpass("run-script", "train.py", "--rules", "r.toml", "--", "--steps", "3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "P(None, 'model') 0.36 8"
    assert lines[1] == f"__main__ {folder / 'train.py'} ['train.py', '--steps', '3'] False"
    assert done.stderr == ""


def test_report(script, folder: Path, shardpass: Run):
    script("train()\njax.jit(lambda metrics: metrics)(3.0)\n")
    command = ("run-script", "train.py", "--rules", "r.toml", "--report")
    done = shardpass(*command, "--leave-alone", "<lambda>")
    assert done.returncode == 0
    assert done.stdout == ""
    at = f"at {folder / 'train.py'}"
    assert f"compiled with a plan: 1 function\n  step {at}:7 (2 times)" in done.stderr
    assert "  batch  P('data',)" in done.stderr
    assert f"<lambda> {at}:17: asked for by name" in done.stderr
    told = json.loads(shardpass("--diagnostics", "json", *command).stderr)
    assert told["compiled"][0]["name"] == "step"
    assert told["left_alone"][0]["why"] == "nothing"


def test_mesh_and_pipeline_of_the_command_line(script, shardpass: Run):
    script("print(dict(train().sharding.mesh.shape), jax.device_count())\n")
    options = ("--rules", "r.toml", "--mesh", "data=4,model=2", "--devices", "12")
    done = shardpass("run-script", "train.py", *options, "--pipeline", "sp-annotate")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'data': 4, 'model': 2} 12\n"


def test_what_the_script_sets_before_jax_counts(script, shardpass: Run):
    """Plugin mode does not import jax before the script does, nor start its backends."""
    script(
        """
        import os
        import sys
        assert "jax" not in sys.modules
        os.environ["JAX_ENABLE_X64"] = "1"
        import jax
        jax.config.update("jax_num_cpu_devices", 9)
        print(jax.jit(lambda batch: batch * 2.0)(jax.numpy.ones((8, 2))).dtype, jax.device_count())
        """,
        before="",
    )
    done = shardpass("run-script", "train.py", "--rules", "r.toml", "--mesh", "data=2,model=4")
    assert "float64 9" in done.stdout, done.stderr


def test_all_threads_of_a_script(script, shardpass: Run):
    script(
        """
        import threading
        found = []
        thread = threading.Thread(target=lambda: found.append(train()))
        thread.start()
        thread.join()
        print(found[0].sharding.spec)
        """
    )
    done = shardpass("run-script", "train.py", "--rules", "r.toml")
    assert done.stdout == "P(None, 'model')\n"


def test_a_script_like_any_other(script, folder: Path, shardpass: Run):
    """Imports from its folder, pickles of its classes, and what it leaves for the end."""
    script(
        """
        import atexit
        import pickle
        import helper

        class Mine:
            value = 3

        atexit.register(lambda: print("last"))
        print(helper.NAME, pickle.loads(pickle.dumps(Mine())).value, input())
        """,
        before="",
    )
    (folder / "helper.py").write_text("NAME = 'beside'\n")
    done = shardpass("run-script", "train.py", "--rules", "r.toml", "-q", input="asked\n")
    assert done.stdout == "beside 3 asked\nlast\n"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("end", "code", "told"),
    [
        ("sys.exit(7)", 7, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('bye')", 1, "bye\n"),
        (
            "raise KeyError('mine')",
            1,
            "Traceback (most recent call last):\n"
            '  File "{folder}/train.py", line 2, in <module>\n'
            "    raise KeyError('mine')\n"
            "KeyError: 'mine'\n",
        ),
        (
            "import os; os.abort()",
            3,
            "error[process-aborted]: the process of train.py was ended by SIGABRT\n"
            "  help: what it wrote last stands above; run it with python alone to see whether the "
            "rules have a part in it\n",
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
            130,
            "Traceback (most recent call last):\n"
            '  File "{folder}/train.py", line 2, in <module>\n'
            "    import os, signal; os.kill(os.getpid(), signal.SIGINT)\n"
            "KeyboardInterrupt\n",
        ),
        (
            "import sys; sys.excepthook = lambda *_: print('hooked', file=sys.stderr); 1 / 0",
            1,
            "hooked\n",
        ),
    ],
)
def test_the_end_is_the_scripts_own(
    script, folder: Path, shardpass: Run, end: str, code: int, told: str
):
    script(f"{end}\n", before=PLAIN)
    done = shardpass("run-script", "-q", "train.py", "--rules", "r.toml")
    said = re.sub(r"^ +[~^]+\n", "", done.stderr, flags=re.MULTILINE)
    assert (done.returncode, said) == (code, told.format(folder=folder))


def test_an_error_in_a_function_under_jit_has_none_of_our_frames(script, shardpass: Run):
    script("jax.jit(lambda batch: batch @ batch)(np.ones((8, 3)))\n")
    done = shardpass("run-script", "train.py", "--rules", "r.toml")
    assert done.returncode == 1
    assert "TypeError: dot_general requires contracting dimensions" in done.stderr
    # The folder that all of this lies in may be called so as well.
    assert not re.search(r"shardpass/(?:cli|compat|mlir|passes|runtime)/", done.stderr)


def test_a_batch_that_does_not_divide(script, folder: Path, shardpass: Run):
    """The rules' fault and not the script's: a message and no traceback."""
    script("try:\n    train(7)\nexcept ValueError as error:\n    print(error.slug)\n    raise\n")
    done = shardpass("run-script", "train.py", "--rules", "r.toml")
    assert (done.returncode, done.stdout) == (1, "indivisible\n")
    assert done.stderr == (
        '<module>: error[indivisible]: argument 1 ("batch"), dimension 0: 7 elements into 2 '
        "pieces\n"
        '  note: sharding is [{"data"}] on mesh data=2, model=4\n'
        '  note: rule 1 (r.toml:5): match = "^batch$", spec = ["data"]\n'
        f"  note: plugin mode was compiling step at {folder}/train.py:7\n"
        f"  note: called at {folder}/train.py:14\n"
        "  help: pad to 8 (nearest sizes that work: 6 and 8), drop an axis, or set indivisible = "
        '"replicate"\n'
    )


def test_rules_without_a_use(script, shardpass: Run):
    script("jax.jit(lambda batch: batch * 2)(np.ones((8, 3)))\n")
    done = shardpass("run-script", "train.py", "--rules", "r.toml")
    assert done.returncode == 0
    assert done.stderr.startswith("warning[unused-rule]: in no function that was compiled: rule 2")


def test_a_script_without_jax(script, shardpass: Run):
    script("print('done')\n", before=PLAIN)
    done = shardpass("run-script", "train.py", "--rules", "r.toml")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == "train.py has not imported jax: there was nothing to compile\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("train.py",), 2, "nothing says how to shard: give --rules FILE, or --pipeline TEXT"),
        (("none.py", "--rules", "r.toml"), 2, "cannot read none.py: there is no file of that name"),
        ((".", "--rules", "r.toml"), 2, "read .: it is a folder without a file __main__.py"),
        (("train.py", "--rule", "r.toml"), 2, "No such option"),
        (("train.py", "--rules", "none.toml"), 1, "error[unreadable]"),
        (("train.py", "--rules", "r.toml", "--mesh", "data"), 2, "error[bad-mesh]: expected"),
        (("train.py", "--rules", "r.toml", "--pipeline", "sp-x"), 2, "error[unknown-pass]"),
        (("train.py", "--pipeline", "sp-propagate"), 1, "error[bad-mesh]: plugin mode has no"),
        (("train.py", "--rules", "r.toml", "--devices", "4"), 1, "error[not-enough-devices]"),
        (("train.py", "--rules", "r.toml", "--devices", "4"), 1, "help: give --devices as many as"),
    ],
)
def test_bad_input(script, shardpass: Run, arguments: tuple[str, ...], code: int, told: str):
    script("train()\nprint('reached')\n")
    done = shardpass("run-script", *arguments)
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_script_that_cannot_be_compiled(script, folder: Path, shardpass: Run):
    script("def\n", before="")
    done = shardpass("run-script", "train.py", "--rules", "r.toml")
    assert done.returncode == 1
    assert done.stderr.startswith(f'  File "{folder}/train.py", line 1\n    def\n')
    assert "SyntaxError" in done.stderr


def test_a_signal_reaches_the_script(script, folder: Path):
    """Who ends the command ends the script, which may do something about it first."""
    script(
        """
        import signal, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        print("waiting", flush=True)
        time.sleep(60)
        """,
        before=PLAIN,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "shardpass", "run-script", "train.py", "--rules", "r.toml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 5


def test_a_folder_with_a_program(folder: Path, shardpass: Run):
    """As ``python FOLDER`` runs it."""
    (folder / "r.toml").write_text(RULES)
    (folder / "app").mkdir()
    (folder / "app" / "helper.py").write_text("NAME = 'beside'\n")
    (folder / "app" / "__main__.py").write_text(
        "import sys, helper\nprint(helper.NAME, __file__, sys.argv, __package__ == '')\n1 / 0\n"
    )
    done = shardpass("run-script", "-q", "app", "--rules", "r.toml", "--", "3")
    assert done.returncode == 1
    main = folder / "app" / "__main__.py"
    assert done.stdout == f"beside {main} ['app', '3'] True\n"
    assert done.stderr.startswith(
        f'Traceback (most recent call last):\n  File "{main}", line 3, in <module>\n'
    )


def test_a_script_that_goes_elsewhere(script, folder: Path, shardpass: Run):
    """Its traceback and its file are found from there, too."""
    script("import os; os.chdir('/'); print(os.path.isfile(__file__)); 1 / 0\n", before=PLAIN)
    done = shardpass("run-script", "-q", "train.py", "--rules", "r.toml")
    assert done.stdout == "True\n"
    assert done.stderr.count("File ") == 1
    assert f'File "{folder}/train.py", line 2, in <module>' in done.stderr


def test_what_threads_compile_is_in_the_report(script, shardpass: Run):
    """They may go on when the script's last line is done, and so may what is left for the end."""
    script(
        """
        import atexit, os, threading, time
        def late():
            time.sleep(1)
            train()
            print("trained")
        threading.Thread(target=late).start()
        atexit.register(lambda: print(jax.jit(lambda batch: batch.sum())(np.ones((8, 3))).shape))
        if os.fork() == 0:
            os._exit(0)
        """
    )
    done = shardpass("run-script", "train.py", "--rules", "r.toml", "--report")
    assert (done.returncode, done.stdout) == (0, "trained\n()\n")
    assert "compiled with a plan: 2 functions\n  step at " in done.stderr
    assert done.stderr.count("shardpass plugin on mesh") == 1


def test_a_function_that_failed_is_in_the_report(script, shardpass: Run):
    script("try:\n    train(7)\nexcept ValueError:\n    train(8)\n")
    done = shardpass("run-script", "train.py", "--rules", "r.toml", "--report")
    assert done.returncode == 0
    assert 'argument 1 ("batch"), dimension 0: 7 elements into 2 pieces' in done.stderr
    assert "not compiled: 1 function\n  step at " in done.stderr


def test_names_to_leave_alone_that_nothing_has(script, shardpass: Run):
    script("train()\n")
    done = shardpass("run-script", "train.py", "--rules", "r.toml", "--leave-alone", "stepp")
    assert done.returncode == 0
    assert done.stderr.startswith("warning[unused-name]: no function that JAX compiled is called")
