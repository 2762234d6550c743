"""The path under which Ray's scripts import ``TorchConfig``."""

from holdfast.train.torch.torch_config import TorchConfig

__all__ = ["TorchConfig"]
