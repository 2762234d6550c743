"""LightGBM: training resumes from the last round, and ends with the model of an undisturbed run."""

from __future__ import annotations

from support.frameworks.framework_contract import Job, check_kills

JOB = "lightgbm_job.py"


def test_a_killed_worker_and_a_killed_driver(job: Job) -> None:
    check_kills(job, worker=5, rank=1, driver=9, rounds=list(range(1, 11)), source=4)
