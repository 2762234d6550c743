"""Transformers: training resumes in the middle of an epoch, and ends as if nothing had happened."""

from __future__ import annotations

from support.frameworks.framework_contract import Job, check_kills

JOB = "transformers_job.py"
STEPS = [2, 4, 6, 8, 10]


def test_a_killed_worker_and_a_killed_driver(job: Job) -> None:
    check_kills(job, worker=5, rank=1, driver=9, rounds=STEPS, source=4)


def test_kills_of_a_script_as_guides_for_ray_write_it(job: Job) -> None:
    """It reports epochs, of five steps each, and repeats what it had of the one in which it was killed."""
    job.script = "transformers_guide_job.py"
    check_kills(job, worker=8, rank=1, driver=12, rounds=[5, 10, 15], source=5)
