"""Accelerate: a loop resumes after its last epoch, and ends as if nothing had happened."""

from __future__ import annotations

from support.frameworks.framework_contract import Job, check_kills

JOB = "accelerate_job.py"


def test_a_killed_worker_and_a_killed_driver(job: Job) -> None:
    check_kills(job, worker=3, rank=1, driver=5, rounds=list(range(1, 7)), source=2)
