"""JAX: one program over two processes resumes from its last checkpoint, and ends as if nothing had happened."""

from __future__ import annotations

from support.frameworks.framework_contract import Job, check_kills

JOB = "jax_job.py"


def test_a_killed_worker_and_a_killed_driver(job: Job) -> None:
    check_kills(job, worker=5, rank=1, driver=9, rounds=list(range(1, 11)), source=4)


def test_orbax_is_killed_while_it_writes(job: Job) -> None:
    job.script = "orbax_job.py"
    check_kills(job, worker=4, rank=1, driver=6, rounds=list(range(1, 7)), source=2)
