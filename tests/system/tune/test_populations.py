"""Population-based training to its end, and the schedule that it came to, replayed from the file that it leaves."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast import tune
from holdfast.tune.schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay
from support.tune import counting


def test_a_population_that_waits_for_each_other_leaves_a_schedule_that_can_be_replayed(tmp_path: Path) -> None:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=3,
        hyperparam_mutations={"step": [1, 2, 3, 9]},
        quantile_fraction=0.5,
        synch=True,
        seed=1,
    )
    grid = counting.tuner(str(tmp_path), scheduler, samples=1, step=tune.grid_search([1, 9])).fit()
    assert [result.metrics["epoch"] for result in grid] == [counting.EPOCHS] * 2, "they wait for each other twice"

    directory = tmp_path / "counted"
    lines = [json.loads(line) for line in (directory / "pbt_global.txt").read_text().splitlines()]
    assert len(lines) >= 2
    changed = {line[0] for line in lines}
    assert {path.name for path in directory.glob("pbt_policy_*.txt")} == {f"pbt_policy_{id}.txt" for id in changed}

    again = next(result for result in grid if result.metrics["trial_id"] == lines[-1][0])
    policy = directory / f"pbt_policy_{again.metrics['trial_id']}.txt"
    replay = counting.tuner(str(tmp_path / "again"), PopulationBasedTrainingReplay(str(policy)), samples=1).fit()
    assert replay[0].metrics["total"] == again.metrics["total"]
    assert replay[0].config["step"] == again.config["step"]
