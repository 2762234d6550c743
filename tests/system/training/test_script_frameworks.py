"""What the script imports of a framework is imported once for all restarts, and not by each of its workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, sys, time
import sklearn
from holdfast import train
from holdfast.engine.script_imports import frameworks_of

def is_preloaded():
    with open(os.environ["IMPORTS"]) as file:
        return "hf-zygote" in file.read()

def train_fn():
    train.report({"step": 1})
    deadline = time.monotonic() + 60.0
    while not is_preloaded() and time.monotonic() < deadline:
        time.sleep(0.01)

if __name__ == "__main__":
    variables = {"env_vars": {"LEVEL": "1"}}
    run = train.RunConfig(storage_path=sys.argv[1], name="imports", verbose=0)
    other = train.RunConfig(storage_path=sys.argv[1], name="other", worker_runtime_env=variables)
    train.DataParallelTrainer(train_fn, run_config=run).fit()
    print(is_preloaded(), *(frameworks_of(train_fn, one.worker_runtime_env) for one in (run, other)))
"""
KILLED = """
import os, signal, sys
import sklearn
from holdfast import train

def train_fn():
    sklearn.__name__
    with open(os.environ["IMPORTS"]) as file:
        print("imported by", file.read().split(), flush=True)
    try:
        open(f"{sys.argv[1]}-killed", "x").close()
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    retries = train.FailureConfig(max_failures=1)
    run = train.RunConfig(storage_path=sys.argv[1], name="killed", verbose=0, failure_config=retries)
    train.DataParallelTrainer(train_fn, run_config=run).fit()
"""
PACKAGE = """
import os
with open(os.environ["IMPORTS"], "a") as file, open("/proc/self/comm") as name:
    file.write(name.read())
"""


def test_a_framework_is_imported_after_the_first_report(tmp_path: Path) -> None:
    """Unless the run sets variables in its workers: they may change what the import does."""
    job, _, main = SCRIPT.partition("if __name__")
    (tmp_path / "job.py").write_text(job)
    done = run(tmp_path, f"{job.partition('def ')[0]}from job import is_preloaded, train_fn\nif __name__{main}")
    assert done.stdout == "True ['sklearn'] []\n", done.stderr


def test_a_framework_of_the_script_s_own_function_is_imported_before_the_first_worker(tmp_path: Path) -> None:
    """A worker that is killed in the first seconds needs no import either."""
    done = run(tmp_path, KILLED)
    assert done.returncode == 0, done.stderr
    logs = sorted((tmp_path / "results" / "killed").rglob("*rank*0*.log"))
    said = [line for log in logs for line in log.read_text().splitlines() if "imported by" in line]
    assert len(said) == 2, said
    for line in said:
        assert line.count("hf-zygote") == 1
        assert line.count(",") == 1, "the script and the zygote, and no worker"


def run(home: Path, script: str) -> subprocess.CompletedProcess[str]:
    (home / "site-packages" / "sklearn").mkdir(parents=True)
    (home / "site-packages" / "sklearn" / "__init__.py").write_text(PACKAGE)
    (home / "script.py").write_text(script)
    path = os.pathsep.join([str(home / "site-packages"), os.environ["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, str(home / "script.py"), str(home / "results")],
        env={**os.environ, "PYTHONPATH": path, "IMPORTS": str(home / "imports")},
        capture_output=True,
        text=True,
        timeout=110,
    )
