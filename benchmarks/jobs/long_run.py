"""Job: many reports and checkpoints, keeping few; worker and driver write down when each stretch of them was done."""

import json
import os
import sys
import tempfile
import time

import holdfast.train
from holdfast.train.torch import TorchTrainer


def mark(config, name, count):
    with open(os.path.join(config["log"], name), "a") as file:
        file.write(f"{time.monotonic()} {count}\n")


def train_fn(config):
    rank = holdfast.train.get_context().get_world_rank()
    mark(config, f"worker-{rank}", 0)
    for step in range(config["reports"]):
        metrics = {"step": step, "loss": 1.0 / (step + 1)}
        if (step + 1) % config["checkpoint_every"]:
            holdfast.train.report(metrics)
        else:
            with tempfile.TemporaryDirectory() as directory:
                with open(os.path.join(directory, f"rank{rank}.txt"), "w") as file:
                    file.write(str(step))
                holdfast.train.report(metrics, checkpoint=holdfast.train.Checkpoint.from_directory(directory))
        if (step + 1) % config["stretch"] == 0:
            mark(config, f"worker-{rank}", step + 1)


class Marks(holdfast.train.UserCallback):
    def __init__(self, config):
        self.config, self.count, self.checkpoints = config, 0, 0
        mark(config, "driver", 0)

    def after_report(self, run_context, metrics, checkpoint):
        self.count += 1
        self.checkpoints += checkpoint is not None
        if self.count % self.config["stretch"] == 0:
            mark(self.config, "driver", self.count)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    marks = Marks(arguments)
    result = TorchTrainer(
        train_fn,
        train_loop_config=arguments,
        scaling_config=holdfast.train.ScalingConfig(num_workers=2),
        run_config=holdfast.train.RunConfig(
            name="long_run",
            storage_path=arguments["storage"],
            callbacks=[marks],
            checkpoint_config=holdfast.train.CheckpointConfig(num_to_keep=3),
        ),
    ).fit()
    with open(os.path.join(arguments["log"], "fit"), "w") as file:
        kept = len(result.best_checkpoints)
        json.dump({"step": result.metrics["step"], "checkpoints": marks.checkpoints, "kept": kept}, file)
