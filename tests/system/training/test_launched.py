"""Local mode under torchrun: its processes are one world."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from holdfast import train
from support.train import launched_script

ENDS_WITHIN_S = 120.0


def test_the_processes_of_torchrun_are_one_world(tmp_path: Path) -> None:
    runs, notes = tmp_path / "runs", tmp_path / "notes"
    notes.mkdir()
    script = [launched_script.__file__, str(runs), str(notes)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *script]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, env=env)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((notes / str(rank)).read_text()) for rank in (0, 1))
    (run,) = runs.iterdir()
    for note in (first, second):
        assert (note["world"], note["name"], note["said"]) == (2, run.name, "rank 0")
        assert note["model"] == "DistributedDataParallel"
    assert sorted(first["seen"] + second["seen"]) == list(range(8))
    result = train.Result.from_path(str(run))
    assert result.checkpoint is not None
    assert json.loads(Path(result.checkpoint.path, "seen").read_text()) == first["seen"]
