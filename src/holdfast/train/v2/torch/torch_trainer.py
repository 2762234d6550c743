"""``TorchTrainer``, under the path that scripts from Ray import it from."""

from __future__ import annotations

from holdfast.train.torch import TorchTrainer as TorchTrainer
