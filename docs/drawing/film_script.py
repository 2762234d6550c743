"""What the recording trains: the script of the README with a network that is large enough to watch."""

import os

import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import TorchTrainer, TrainState, prepare_data_loader, prepare_model


def train_loop(config):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(4096, 256)
    loader = prepare_data_loader(DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=256, shuffle=True))
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    state = TrainState(model=model, optimizer=optimizer, loader=loader, loss=0.0)
    state.resume()
    if train.get_context().get_world_rank() == 1:
        print(f"pid {os.getpid()}: starting after step {state.steps}", flush=True)
    for epoch in state.epochs(config["epochs"]):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.loss = loss.item()
            state.snapshot()
        state.report({"epoch": epoch, "loss": state.loss})


if __name__ == "__main__":
    TorchTrainer(
        train_loop,
        train_loop_config={"epochs": 60},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="my-run", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)
        ),
    ).fit()
