"""A script to drill: a lost rank alone is replaced, and each epoch is in a checkpoint."""

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import TorchTrainer, TrainState, prepare_data_loader, prepare_model


def train_loop() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    loader = prepare_data_loader(DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True))
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = TrainState(model=model, optimizer=optimizer, loader=loader)
    state.resume()

    @state.recoverable
    def step(inputs: Any, wanted: Any) -> Any:
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for epoch in state.epochs(8):
        for inputs, wanted in loader:
            loss = step(inputs, wanted)
        state.report({"epoch": epoch, "loss": loss.item()})


if __name__ == "__main__":
    TorchTrainer(
        train_loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)),
    ).fit()
