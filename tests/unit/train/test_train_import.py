from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(program: str) -> str:
    env = {**os.environ, "HOLDFAST_PREFORK": "0"}  # the snapshot of the process is what torch is imported for
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "import holdfast.train",
        "from holdfast.train import DataParallelTrainer",
        "from holdfast.train.torch import TorchTrainer, TorchConfig, ScalingConfig",
    ],
)
def test_importing_the_api_imports_no_heavy_module(statement: str) -> None:
    heavy = ("torch", "numpy", "pandas", "ray", "asyncio")
    loaded = run(f"import sys\n{statement}\nprint([name for name in {heavy!r} if name in sys.modules])")
    assert loaded.strip() == "[]"


def test_without_torch_the_error_names_the_remedy() -> None:
    said = run(
        "import importlib.machinery as m, sys\n"
        "find = m.PathFinder.find_spec\n"
        "m.PathFinder.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
        "import holdfast.train\n"
        "try:\n"
        "    import holdfast.train.torch\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error.name, error)\n"
    )
    assert said.startswith("torch ")
    assert "pip install 'holdfast[torch]'" in said
