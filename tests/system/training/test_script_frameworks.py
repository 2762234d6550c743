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
    trainer = train.DataParallelTrainer(train_fn, run_config=run)
    trainer.fit()
    print(is_preloaded(), trainer._frameworks(), train.DataParallelTrainer(train_fn, run_config=other)._frameworks())
"""
PACKAGE = """
import os
with open(os.environ["IMPORTS"], "a") as file, open("/proc/self/comm") as name:
    file.write(name.read())
"""


def test_a_framework_is_imported_after_the_first_report(tmp_path: Path) -> None:
    """Unless the run sets variables in its workers: they may change what the import does."""
    (tmp_path / "site-packages" / "sklearn").mkdir(parents=True)
    (tmp_path / "site-packages" / "sklearn" / "__init__.py").write_text(PACKAGE)
    (tmp_path / "script.py").write_text(SCRIPT)
    path = os.pathsep.join([str(tmp_path / "site-packages"), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "results")],
        env={**os.environ, "PYTHONPATH": path, "IMPORTS": str(tmp_path / "imports")},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.stdout == "True ['sklearn'] []\n", done.stderr
