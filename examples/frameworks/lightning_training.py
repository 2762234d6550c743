"""Lightning over two workers, with checkpoints in the middle of epochs. The guide docs/lightning.md explains it."""

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train  # 1
from holdfast.train.lightning import HoldfastDDPStrategy, LightningReportCallback, fit  # 2
from holdfast.train.torch import TorchTrainer  # 3


class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.05)


def main():
    pl.seed_everything(0)
    x = torch.randn(256, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
    trainer = pl.Trainer(
        max_epochs=3,
        strategy=HoldfastDDPStrategy(),  # 4
        callbacks=[LightningReportCallback(every_n_train_steps=5)],  # 5
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    fit(trainer, Line(), loader)  # 6: instead of trainer.fit(Line(), loader)


if __name__ == "__main__":
    run = train.RunConfig(name="line", storage_path="runs", failure_config=train.FailureConfig(max_failures=3))  # 7
    TorchTrainer(main, scaling_config=train.ScalingConfig(num_workers=2), run_config=run).fit()  # 8: instead of main()
