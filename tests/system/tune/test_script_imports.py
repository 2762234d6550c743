"""Trials are forked from a process that has imported what the script has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import own_module
from holdfast import tune

def trial(config):
    import slow_package
    return {"value": slow_package.VALUE + config["x"]}

if __name__ == "__main__":
    run = tune.RunConfig(storage_path=sys.argv[1], name="imports", verbose=0)
    grid = tune.Tuner(trial, param_space={"x": tune.grid_search([1, 2, 3, 4])}, run_config=run).fit()
    print([result.metrics["value"] for result in grid])
"""
PACKAGE = """
import os
VALUE = 10
with open(os.environ["IMPORTS"], "a") as file:
    file.write("package\\n")
"""
OWN_MODULE = """
import os
import slow_package
with open(os.environ["IMPORTS"], "a") as file:
    file.write("own\\n")
"""
THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


@pytest.mark.parametrize("starts_a_thread", [False, True])
def test_an_installed_package_is_imported_once_for_all_trials(tmp_path: Path, starts_a_thread: bool) -> None:
    """A package that starts a thread at import is not: a fork of such a process could hang."""
    installed = tmp_path / "site-packages"
    (installed / "slow_package").mkdir(parents=True)
    (installed / "slow_package" / "__init__.py").write_text(PACKAGE + (THREAD if starts_a_thread else ""))
    (tmp_path / "own_module.py").write_text(OWN_MODULE)
    (tmp_path / "script.py").write_text(SCRIPT)
    imports = tmp_path / "imports"
    path = os.pathsep.join([str(installed), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "results")],
        env={**os.environ, "PYTHONPATH": path, "IMPORTS": str(imports)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "[11, 12, 13, 14]\n", done.stderr
    counted = imports.read_text().splitlines()
    assert counted.count("own") == 1, "a module of the user's may compute at import: no template imports it"
    assert counted.count("package") == 2 + (4 if starts_a_thread else 0)
