"""Horovod: a job of two workers resumes from its last checkpoint, and ends as if nothing had happened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.docs.page_blocks import name_of, needs_horovod, pages
from support.frameworks.framework_contract import HERE, PATIENCE_S, Job, check_kills, check_sizes, numbers
from support.frameworks.framework_pages import ALL_FAULTS_TIMEOUT_S, drill, drill_all, run_page

ROUNDS = list(range(1, 11))


def test_a_killed_worker_and_a_killed_driver(job: Job) -> None:
    check_kills(job, worker=5, rank=1, driver=9, rounds=ROUNDS, source=4)


def test_rank_zero_which_serves_the_store_is_killed(job: Job) -> None:
    found = job.run("struck", strikes={"0": 5})
    assert found["rounds"] == ROUNDS
    assert sum(what == "start" for what, _, _, _ in found["notes"]) == 4


def test_a_node_joins_and_is_lost(job: Job) -> None:
    """The sums of two workers differ from those of one in the last bits."""
    calm, found = job.run("calm"), check_sizes(job, joins=3, lost=6, rounds=ROUNDS)
    assert numbers(found["model"]) == pytest.approx(numbers(calm["model"]), abs=1e-5)


def test_one_worker_in_the_process_of_the_script(job: Job) -> None:
    found = job.run("local", workers=0)
    assert found["rounds"] == ROUNDS
    assert found["metrics"]["size"] == 1


def test_a_rank_that_returns_early_leaves_the_others_their_job(tmp_path: Path) -> None:
    assert _story("early", tmp_path) == [0, 2, True]


def test_an_exception_names_its_rank(tmp_path: Path) -> None:
    assert _story("raises", tmp_path) == [1, "ValueError('planned')", True]


def test_a_trainer_is_a_trainable(tmp_path: Path) -> None:
    assert _story("tuned", tmp_path) == [[1, 2], [2, 2], 0]


@pytest.mark.parametrize("page", [page for page in pages() if needs_horovod(page)], ids=name_of)
def test_the_page_runs(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


def test_the_example_passes_a_drill(tmp_path: Path) -> None:
    drill("horovod_training.py", tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(ALL_FAULTS_TIMEOUT_S)
def test_the_example_passes_a_drill_of_all_faults(tmp_path: Path) -> None:
    drill_all("horovod_training.py", tmp_path)


def test_the_extra_is_what_was_built() -> None:
    """The last command of the guide's installation: it finds all that the extra asks for, and fetches nothing."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "holdfast[horovod]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Requirement already satisfied: horovod" in done.stdout
    assert "Would install" not in done.stdout


def _story(name: str, home: Path) -> object:
    command = [sys.executable, str(HERE / "horovod_stories.py"), str(home), name]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
