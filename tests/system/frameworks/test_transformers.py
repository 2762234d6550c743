"""Transformers: training resumes in the middle of an epoch, and ends as if nothing had happened."""

from __future__ import annotations

from support.frameworks.framework_contract import Job, check_kills

JOB = "transformers_job.py"
STEPS = [2, 4, 6, 8, 10]


def test_a_killed_worker_and_a_killed_driver(job: Job) -> None:
    check_kills(job, worker=5, rank=1, driver=9, rounds=STEPS, source=4)
