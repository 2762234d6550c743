"""Job: train a small DDP model on nodes that the benchmark kills and adds, with a checkpoint every few steps.

Each call of the train function writes a file of its own, named for rank, world size, time of entry and node, with a
line for each step completed: the time, and the step. Orders are lines of a file: ``kill NODE`` or ``add``; when each
was carried out is written down too. All times are of the monotonic clock that the processes of a machine share.
"""

import json
import os
import sys
import tempfile
import threading
import time

import torch

import holdfast.train
from holdfast.train.torch import TorchTrainer, prepare_model
from nodes_of.holdfast import Nodes, here


def train_fn(config):
    context = holdfast.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    name = f"{rank}-{world}-{time.monotonic_ns()}-{here()}"
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
    plain, model = model, prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))
    for step in range(first, 1_000_000):
        until = time.monotonic() + config["step_s"]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        time.sleep(max(0.0, until - time.monotonic()))
        os.write(log, f"{time.monotonic()} {step}\n".encode())
        if (step + 1) % config["checkpoint_every"] == 0:
            with tempfile.TemporaryDirectory() as directory:
                checkpoint = None
                if rank == 0:
                    torch.save({"model": plain.state_dict(), "step": step}, os.path.join(directory, "state.pt"))
                    checkpoint = holdfast.train.Checkpoint.from_directory(directory)
                holdfast.train.report({"step": step, "loss": loss.item()}, checkpoint=checkpoint)


def obey(nodes, config):
    with open(config["orders"]) as orders, open(config["acts"], "a", buffering=1) as acts:
        while True:
            line = orders.readline()
            if not line.endswith("\n"):
                time.sleep(0.005)
                continue
            order, *node = line.split()
            acts.write(f"{time.monotonic()}\n")
            {"kill": nodes.kill, "add": nodes.add}[order](*node)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    nodes = Nodes(arguments["nodes"])
    threading.Thread(target=obey, args=(nodes, arguments), daemon=True).start()
    workers = arguments["workers"]
    TorchTrainer(
        train_fn,
        train_loop_config=arguments,
        scaling_config=holdfast.train.ScalingConfig(
            num_workers=tuple(workers) if isinstance(workers, list) else workers,
            elastic_resize_monitor_interval_s=arguments["resize_every_s"],
        ),
        run_config=holdfast.train.RunConfig(
            name="nodes",
            storage_path=arguments["storage"],
            failure_config=holdfast.train.FailureConfig(max_failures=-1),
            checkpoint_config=holdfast.train.CheckpointConfig(num_to_keep=2),
            **nodes.run_options,
        ),
    ).fit()
