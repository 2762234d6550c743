"""What the recording trains: a small network, with a pause in each step, so that a reader can watch it."""

import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import TorchTrainer, TrainState, prepare_data_loader, prepare_model


def train_loop(config):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(1024, 64)
    loader = prepare_data_loader(DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=32, shuffle=True))
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    state = TrainState(model=model, optimizer=optimizer, loader=loader, loss=0.0)
    state.resume()
    if train.get_context().get_world_rank() == 1:
        print(f"pid {os.getpid()} {f'resumes after step {state.steps}' if state.steps else 'starts'}", flush=True)
    for epoch in state.epochs(config["epochs"]):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.loss = loss.item()
            state.snapshot()
            time.sleep(0.02)
        state.report({"epoch": epoch, "loss": state.loss})


if __name__ == "__main__":
    TorchTrainer(
        train_loop,
        train_loop_config={"epochs": 16},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="my-run", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)
        ),
    ).fit()
