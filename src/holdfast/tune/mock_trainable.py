"""A class trainable without any work, for examples and tests: scripts from Ray import it from ``tune.utils``."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from holdfast.tune.trainable.trainable import Trainable


class MyTrainableClass(Trainable):
    """Its ``episode_reward_mean`` rises to the config's ``height``, more slowly with a larger ``width``. Each step
    sleeps for ``sleep`` seconds. With ``mock_error`` the second step fails once, with ``persistent_error`` every
    time."""

    def setup(self, config: dict[str, Any]) -> None:
        self.timestep = 0

    def step(self) -> dict[str, Any]:
        is_to_fail = self.config.get("persistent_error") or not self._restored
        if self.config.get("mock_error") and self.timestep and is_to_fail:
            raise RuntimeError(f"failed on purpose after step {self.timestep}")
        time.sleep(self.config.get("sleep", 0))
        self.timestep += 1
        reward = math.tanh(self.timestep / self.config.get("width", 1)) * self.config.get("height", 1)
        return {"episode_reward_mean": reward}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "checkpoint").write_text(json.dumps({"timestep": self.timestep}))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.timestep = json.loads(Path(checkpoint, "checkpoint").read_text())["timestep"]
