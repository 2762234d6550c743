"""Lightning: training resumes in the middle of an epoch, and ends as if nothing had happened."""

from __future__ import annotations

from support.frameworks.framework_contract import Job, check_kills

JOB = "lightning_job.py"
STEPS = [2, 4, 6, 7, 8, 10, 12, 14, 16, 18, 20, 21]  # every second one, and the ends of epochs


def test_a_killed_worker_and_a_killed_driver(job: Job) -> None:
    check_kills(job, worker=11, rank=1, driver=15, rounds=STEPS)
