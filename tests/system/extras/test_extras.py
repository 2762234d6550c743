"""Each extra alone in a fresh environment, with ``make extras``: without it the message says which to install; with it
the names are there, and an example runs. What the environment has is what the extra asks for, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.repository import ROOT

PATIENCE_S = 900.0
TORCH = os.environ.get("TORCH", "torch==2.13.0")  # the newest comes with gigabytes of CUDA
pytestmark = [pytest.mark.extras, pytest.mark.timeout(PATIENCE_S)]


@dataclass(frozen=True)
class Extra:
    name: str
    use: str  # Python that needs it
    example: str = ""  # a script in examples/
    needs_torch: bool = False
    stand_ins: tuple[str, ...] = ()  # instead of the extra: builds for CPUs, which are smaller
    example_extra: str = ""  # what the example needs beside it


ONE_RUN = """
from holdfast import train
def train_fn():
    train.report({"step": 1})
run = train.RunConfig(name="run", storage_path="runs", verbose=0)
result = train.DataParallelTrainer(train_fn, run_config=run).fit()
"""
FREE_PORT = """
import os, socket
with socket.create_server(("127.0.0.1", 0)) as server:
    os.environ["HOLDFAST_METRICS_PORT"] = str(server.getsockname()[1])
"""
EXTRAS = [
    Extra("torch", "import holdfast.train.torch", "demo.py", needs_torch=True),
    Extra("lightning", "import holdfast.train.lightning", "frameworks/lightning_training.py", needs_torch=True),
    Extra(
        "transformers",
        "import holdfast.train.huggingface.transformers",
        "frameworks/transformers_training.py",
        needs_torch=True,
    ),
    Extra(
        "tensorflow",
        "import holdfast.train.tensorflow, holdfast.tune.integration.keras",
        "frameworks/tensorflow_training.py",
        stand_ins=("tensorflow-cpu>=2.16",),
    ),
    Extra("jax", "import holdfast.train.jax, holdfast.train.v2.jax", "frameworks/jax_training.py"),
    Extra(
        "xgboost",
        "import holdfast.train.xgboost, holdfast.tune.integration.xgboost",
        "frameworks/xgboost_training.py",
        example_extra="data",
        stand_ins=("xgboost-cpu>=2.1",),
    ),
    Extra(
        "lightgbm",
        "import holdfast.train.lightgbm, holdfast.tune.integration.lightgbm",
        "frameworks/lightgbm_training.py",
        example_extra="data",
    ),
    Extra("sklearn", "", "frameworks/sklearn_training.py"),  # there is nothing of it in Holdfast to import
    Extra("dataframe", f"{ONE_RUN}assert list(result.metrics_dataframe['step']) == [1]"),
    Extra(
        "data",
        "import holdfast.data; assert holdfast.data.range(3).to_pandas()['id'].sum() == 3\n"
        f"{ONE_RUN}assert result.filesystem.get_file_info(result.path).type.name == 'Directory'",
    ),
    Extra("optuna", "from holdfast.tune.search.optuna import OptunaSearch; OptunaSearch(metric='a', mode='min')"),
    Extra("prometheus", f"{FREE_PORT}{ONE_RUN}"),
    Extra("completion", "import sys; from holdfast.cli.main import main; sys.exit(main(['completion', 'bash']))"),
]
ELSEWHERE = {
    **dict.fromkeys(("ax", "bayesopt", "bohb", "hyperopt", "nevergrad", "zoopt"), "make searchers"),
    "horovod": "make horovod",
    "aws": "needs a profile: tests/system/object_stores",
    "ray": "tests/system/ray",
    "ui": "part of dev",
    "docs": "make docs",
    "dev": "all of make test",
}


class Environment:
    """A fresh one, that has Holdfast as a user installs it: built from the source, not linked to it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.python = home / "venv" / "bin" / "python"
        found = shutil.which("uv")
        if found:
            self._call([found, "venv", "--quiet", "--python", sys.executable, str(home / "venv")])
            self._install = [found, "pip", "install", "--quiet", "--python", str(self.python)]
        else:
            self._call([sys.executable, "-m", "venv", str(home / "venv")])
            self._install = [str(self.python), "-m", "pip", "install", "--quiet"]

    def install(self, *packages: str) -> None:
        self._call([*self._install, *packages])

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """With the variables that a shell has, and none of the environment that the tests run in."""
        directory, temp = self.home / "work", self.home / "temp"
        for path in (directory, temp):
            path.mkdir(exist_ok=True)
        kept = {name: os.environ[name] for name in ("HOME", "PATH", "LANG") if name in os.environ}
        env = {**kept, "TMPDIR": str(temp), "PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [str(self.python), *arguments]
        return subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=PATIENCE_S)

    def _call(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("extra", EXTRAS, ids=lambda extra: extra.name)
def test_an_extra_alone(extra: Extra, tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    environment.install(str(ROOT))
    if extra.use:
        without = environment.run("-c", extra.use)
        assert without.returncode != 0
        assert f"pip install 'holdfast[{extra.name}]'" in without.stderr, without.stderr
        shutil.rmtree(tmp_path / "work")
    if extra.needs_torch:
        environment.install(TORCH)
    environment.install(*(extra.stand_ins or [f"holdfast[{extra.name}] @ {ROOT.as_uri()}"]))
    for arguments in [["-c", extra.use], *([[str(ROOT / "examples" / extra.example)]] if extra.example else [])]:
        if arguments[0] != "-c" and extra.example_extra:
            environment.install(f"holdfast[{extra.example_extra}] @ {ROOT.as_uri()}")
        done = environment.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(tmp_path / "venv")  # some are gigabytes


def test_every_extra_is_tried_somewhere() -> None:
    section = (
        (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    )
    assert set(re.findall(r"^(\w+) = \[", section, re.MULTILINE)) == {extra.name for extra in EXTRAS} | set(ELSEWHERE)
