"""A training loop with Accelerate over two workers. The guide docs/transformers.md explains it."""

import tempfile

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import TorchTrainer


def loop():
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    torch.manual_seed(0)
    x = torch.randn(128, 4)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    start, checkpoint = 0, train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            accelerator.load_state(directory)
        start = checkpoint.get_metadata()["epoch"]
    for epoch in range(start, 5):
        loader.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        with tempfile.TemporaryDirectory() as directory:
            accelerator.save_state(directory)
            saved = train.Checkpoint.from_directory(directory)
            if accelerator.is_main_process:
                saved.set_metadata({"epoch": epoch + 1})
            train.report({"epoch": epoch + 1, "loss": loss.item()}, saved)


if __name__ == "__main__":
    run = train.RunConfig(name="accelerate", storage_path="runs", failure_config=train.FailureConfig(max_failures=3))
    result = TorchTrainer(loop, scaling_config=train.ScalingConfig(num_workers=2), run_config=run).fit()
    print(result.metrics)
