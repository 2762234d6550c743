"""``TuneBOHB`` with ``HyperBandForBOHB`` on real trials, as in Ray's example of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune.schedulers.hb_bohb import HyperBandForBOHB
from holdfast.tune.search.bohb import TuneBOHB


class Curve(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.step_number = 0

    def step(self) -> dict[str, Any]:
        self.step_number += 1
        return {"loss": (self.config["width"] - 3) ** 2 + 10 / self.step_number}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"step": self.step_number}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.step_number = checkpoint["step"]


def test_bohb_as_in_the_example(tmp_path: Path) -> None:
    tuner = tune.Tuner(
        Curve,
        param_space={"width": tune.uniform(-10, 10), "activation": tune.choice(["relu", "tanh"])},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=12,
            scheduler=HyperBandForBOHB(time_attr="training_iteration", max_t=9),
            search_alg=TuneBOHB(seed=2, max_concurrent=4, bohb_config={"min_points_in_model": 4}),
        ),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="bohb", verbose=0),
    )
    results = tuner.fit()
    assert results.num_terminated == 12
    iterations = [result.metrics["training_iteration"] for result in results]
    assert max(iterations) == 9
    assert min(iterations) < 9, "the worse ones were stopped early"
    restored = tune.Tuner.restore(str(tmp_path / "bohb"), Curve).get_results()
    assert [result.config for result in restored] == [result.config for result in results]
