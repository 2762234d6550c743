"""Job: two workers train a small DDP model in steps of even length and save a checkpoint every few of them.

Each call of the train function writes a file of its own, named for rank, time of entry and process. It has a line for
each step completed: the time on the monotonic clock that all processes of a machine share, the step, and the seconds
that it took but for the sleep.
"""

import json
import os
import sys
import tempfile
import time

import torch

import holdfast.train
from holdfast.train.torch import TorchTrainer, prepare_model


def train_fn(config):
    rank = holdfast.train.get_context().get_world_rank()
    name = f"{rank}-{time.monotonic_ns()}-{os.getpid()}"
    log = os.open(os.path.join(config["log"], name), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    first = 0
    checkpoint = holdfast.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(os.path.join(directory, "state.pt"), weights_only=True)
        model.load_state_dict(state["model"])
        first = state["step"] + 1
    model = prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))
    for step in range(first, 1_000_000):
        until = time.monotonic() + config["step_s"]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        busy = time.monotonic() - until + config["step_s"]
        time.sleep(max(0.0, until - time.monotonic()))
        os.write(log, f"{time.monotonic()} {step} {busy}\n".encode())
        if (step + 1) % config["checkpoint_every"] == 0:
            with tempfile.TemporaryDirectory() as directory:
                checkpoint = None
                if rank == 0:
                    state = {"model": model.module.state_dict(), "step": step}
                    torch.save(state, os.path.join(directory, "state.pt"))
                    checkpoint = holdfast.train.Checkpoint.from_directory(directory)
                holdfast.train.report({"step": step, "loss": loss.item()}, checkpoint=checkpoint)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    TorchTrainer(
        train_fn,
        train_loop_config=arguments,
        scaling_config=holdfast.train.ScalingConfig(num_workers=2),
        run_config=holdfast.train.RunConfig(
            name="steps",
            storage_path=arguments["storage"],
            failure_config=holdfast.train.FailureConfig(max_failures=-1),
            checkpoint_config=holdfast.train.CheckpointConfig(num_to_keep=2),
        ),
    ).fit()
