"""Datasets to TensorFlow, and from Hugging Face, with the libraries themselves, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.repository import SUPPORT

SCRIPT = SUPPORT / "frameworks" / "data_frameworks.py"


@pytest.mark.parametrize("check", ["check_tf_datasets", "check_keras", "check_hugging_face"])
def test_datasets_of_frameworks(check: str, tmp_path: Path) -> None:
    env = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, str(SCRIPT), check], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
