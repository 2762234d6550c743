"""Lightning: training resumes in the middle of an epoch, and ends as if nothing had happened."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from support.frameworks.framework_contract import HERE, PATIENCE_S, Job, check_kills, check_sizes, numbers

JOB = "lightning_job.py"
STEPS = [2, 4, 6, 7, 8, 10, 12, 14, 16, 18, 20, 21]  # every second one, and the ends of epochs


def test_a_killed_worker_and_a_killed_driver(job: Job) -> None:
    check_kills(job, worker=11, rank=1, driver=15, rounds=STEPS, source=6)


def test_kills_of_a_script_as_guides_for_ray_write_it(job: Job) -> None:
    """It reports epochs, of seven steps each, and repeats what it had of the one in which it was killed."""
    job.script = "lightning_guide_job.py"
    check_kills(job, worker=11, rank=1, driver=18, rounds=[7, 14, 21], source=7)


def test_kills_of_a_sharded_model(job: Job) -> None:
    job.script = "lightning_fsdp_job.py"
    check_kills(job, worker=5, rank=1, driver=9, rounds=[2, 4, 6, 7, 8, 10, 12, 14], source=4)


def test_strategies_for_gpus_pass_and_say_what_they_miss_on_cpus(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "lightning_strategies.py"), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    refused = json.loads(done.stdout.splitlines()[-1])
    assert "FSDP needs a non-CPU accelerator device" in refused["RayFSDPStrategy"]
    assert "DeepSpeed strategy is only supported on CUDA" in refused["RayDeepSpeedStrategy"]


def test_the_number_of_workers_changes_in_the_middle_of_an_epoch(job: Job) -> None:
    """Epochs have six steps. A second worker joins in the first one, and is lost in the second one."""
    job.script = "lightning_sizes_job.py"
    calm = job.run("calm", workers=1)
    found = check_sizes(job, joins=2, lost=8, rounds=list(range(1, 13)))
    assert samples(found) == samples(calm), "each step is for the same samples, each of them once in an epoch"
    assert numbers(found["model"]) == pytest.approx(numbers(calm["model"]), abs=1e-5)


def samples(found: dict[str, Any]) -> dict[str, list[int]]:
    """Of each epoch and step."""
    by_step: dict[str, list[int]] = defaultdict(list)
    for what, _, number, _ in found["notes"]:
        if what.startswith("sample"):
            by_step[what].append(number)
    return {what: sorted(numbers) for what, numbers in by_step.items()}
