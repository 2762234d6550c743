"""Checkpoints that hold a framework's model, and ready batches for Transformers, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.frameworks.framework_contract import HERE, PATIENCE_S

CHECKS = ["check_tensorflow", "check_xgboost", "check_lightgbm", "check_transformers_batches"]


@pytest.mark.parametrize("check", CHECKS)
def test_a_model_and_its_batches(check: str) -> None:
    command = [sys.executable, str(HERE / "framework_checkpoints.py"), check]
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
