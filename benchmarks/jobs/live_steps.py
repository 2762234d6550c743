"""Job: ``steps``, with a step that is done again when a rank is lost. Only Holdfast runs it."""

import json
import os
import sys
import time

import torch

import holdfast.train
from holdfast.train.torch import TorchTrainer, TrainState, prepare_model


def train_fn(config):
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = TrainState(model=model, optimizer=optimizer)
    state.resume()
    rank = holdfast.train.get_context().get_world_rank()
    name = f"{rank}-{time.monotonic_ns()}-{os.getpid()}"
    log = os.open(os.path.join(config["log"], name), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss

    step = state.recoverable(step, by_steps=True)
    while True:
        until, number = time.monotonic() + config["step_s"], state.steps
        loss = step()
        busy = time.monotonic() - until + config["step_s"]
        time.sleep(max(0.0, until - time.monotonic()))
        os.write(log, f"{time.monotonic()} {number} {busy}\n".encode())
        if state.steps % config["checkpoint_every"] == 0:
            state.report({"loss": loss.item()})


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    TorchTrainer(
        train_fn,
        train_loop_config=arguments,
        scaling_config=holdfast.train.ScalingConfig(num_workers=2, standby_workers=arguments.get("standby_workers", 0)),
        run_config=holdfast.train.RunConfig(
            name="steps",
            storage_path=arguments["storage"],
            failure_config=holdfast.train.FailureConfig(max_failures=-1),
            checkpoint_config=holdfast.train.CheckpointConfig(num_to_keep=2),
        ),
    ).fit()
