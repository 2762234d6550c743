"""A whole training script: save and resume in three lines. Kill any of its processes and start it again."""

import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import TorchTrainer, TrainState, prepare_data_loader, prepare_model


def train_loop(config):
    torch.manual_seed(0)
    x = torch.randn(256, 10)
    loader = prepare_data_loader(DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=32, shuffle=True))
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = TrainState(model=model, optimizer=optimizer, loader=loader)
    state.resume()
    for epoch in state.epochs(config["epochs"]):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        state.report({"epoch": epoch, "loss": loss.item()})


if __name__ == "__main__":
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"epochs": 20},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="my-run", storage_path="runs", failure_config=train.FailureConfig(3)),
    )
    print(trainer.fit().metrics)
