"""Datasets in the loops of frameworks: each row is trained on once in each epoch, whatever is killed, and whatever the
number of workers is."""

from __future__ import annotations

from typing import Any

import pytest

from support.frameworks.counted_rows import END, EPOCHS, ROWS
from support.frameworks.framework_contract import Job, check_sizes, numbers

JOB = ""
JOBS = {name: f"{name}_shard_job.py" for name in ("lightning", "transformers", "keras")}


@pytest.mark.parametrize(
    ("framework", "worker", "driver"),
    [("lightning", 12, 17), ("transformers", 9, 17), ("keras", 9, 15)],  # after so many steps; an epoch has 6
)
def test_kills_within_an_epoch_and_after_the_last(framework: str, worker: int, driver: int, job: Job) -> None:
    job.script = JOBS[framework]
    job.run_until_killed("struck", strikes={"1": worker, "driver": driver}, max_failures=2)
    found = job.run("struck", restore=True, strikes={"0": END})
    assert sum(what == "start" for what, _, _, _ in found["notes"]) == 8, "two ranks, four times"
    check_counts(found)


@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_the_number_of_workers_changes_within_an_epoch(framework: str, job: Job) -> None:
    """A second worker joins in the first epoch, and is lost in the second one."""
    job.script = JOBS[framework]
    found = check_sizes(job, joins=2, lost=9, every=1)
    check_counts(found)


def check_counts(found: dict[str, Any]) -> None:
    assert numbers(found["model"]) == [EPOCHS] * ROWS
    counts = [at for what, _, at, _ in found["notes"] if what == "counts"]
    assert {epochs for epochs, *_ in counts} == set(range(1, EPOCHS + 1))
    assert all(seen == [epochs] for epochs, *seen in counts), counts
