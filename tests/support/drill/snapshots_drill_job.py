"""A script to drill: each step is kept in memory, each epoch in a checkpoint."""

import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import TorchTrainer, TrainState, prepare_data_loader, prepare_model


def train_loop() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    loader = prepare_data_loader(DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True))
    model = prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = TrainState(model=model, optimizer=optimizer, loader=loader, loss=0.0)
    state.resume()
    for epoch in state.epochs(8):
        for inputs, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            shared = loss.detach().clone()
            torch.distributed.all_reduce(shared)  # a plain value is the same on all ranks
            state.loss = shared.item()
            state.snapshot()
        state.report({"epoch": epoch, "loss": state.loss})


if __name__ == "__main__":
    TorchTrainer(
        train_loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)),
    ).fit()
