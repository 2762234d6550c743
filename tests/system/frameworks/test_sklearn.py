"""scikit-learn: estimators that learn in parts resume after the last one, and end as if nothing had happened."""

from __future__ import annotations

from support.frameworks.framework_contract import Job, check_kills

JOB = "sklearn_job.py"


def test_a_killed_worker_and_a_killed_driver(job: Job) -> None:
    check_kills(job, worker=5, rank=1, driver=8, rounds=list(range(1, 11)), source=4)
