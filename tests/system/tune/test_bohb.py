"""``TuneBOHB`` with ``HyperBandForBOHB`` on real trials, as in Ray's example of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune.schedulers.hb_bohb import HyperBandForBOHB
from holdfast.tune.search.bohb import TuneBOHB

IN_TIME_S = 100.0


def hold() -> None:
    """If the test is to kill the search when a number of trials has begun: wait for that."""
    storage, deadline = os.environ.get("HOLD_IN", ""), time.monotonic() + IN_TIME_S
    while storage and begun(Path(storage)) >= int(os.environ["HOLD_AT"]):
        assert time.monotonic() < deadline, "it was not killed"
        time.sleep(0.01)


def begun(storage: Path) -> int:
    return len([*(storage / "bohb").glob("Curve_*")])


class Curve(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.step_number = 0
        hold()

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


SEARCH = """
import sys
from holdfast import tune
from holdfast.tune.schedulers.hb_bohb import HyperBandForBOHB
from holdfast.tune.search.bohb import TuneBOHB
from system.tune.test_bohb import Curve

if __name__ == "__main__":
    config = tune.TuneConfig(
        metric="loss",
        mode="min",
        num_samples=8,
        max_concurrent_trials=1,
        scheduler=HyperBandForBOHB(time_attr="training_iteration", max_t=4, reduction_factor=2),
        search_alg=TuneBOHB(seed=2, max_concurrent=4, bohb_config={"min_points_in_model": 3}),
    )
    run = tune.RunConfig(storage_path=sys.argv[1], name="bohb", verbose=0)
    tune.Tuner(Curve, param_space={"width": tune.uniform(-10, 10)}, tune_config=config, run_config=run).fit()
"""


def test_killed_together_they_decide_as_undisturbed(tmp_path: Path) -> None:
    """The scheduler asks the searcher to pause and resume: both are replayed, to the same place."""
    script = tmp_path / "search.py"
    script.write_text(SEARCH)

    def start(storage: str, hold_at: int = 0) -> subprocess.Popen[bytes]:
        held = {"HOLD_IN": str(tmp_path / storage), "HOLD_AT": str(hold_at)} if hold_at else {}
        return subprocess.Popen([sys.executable, str(script), str(tmp_path / storage)], env={**os.environ, **held})

    def outcome(storage: str) -> list[Any]:
        grid = tune.Tuner.restore(str(tmp_path / storage / "bohb"), Curve).get_results()
        return [(result.config, result.metrics["training_iteration"]) for result in grid]

    assert start("plain").wait(IN_TIME_S) == 0
    for trials in (2, 5):
        killed, deadline = start("killed", hold_at=trials), time.monotonic() + IN_TIME_S
        while begun(tmp_path / "killed") < trials:
            assert killed.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        killed.wait(IN_TIME_S)
    assert start("killed").wait(IN_TIME_S) == 0
    assert outcome("killed") == outcome("plain")
    assert len({iterations for _, iterations in outcome("plain")}) > 1, "the worse ones were stopped early"
