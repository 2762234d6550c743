"""The earlier place of ``holdfast.train.tracking``, kept for scripts that import it."""

from holdfast.train.tracking import MLflowCallback, TensorBoardCallback, WandbCallback

__all__ = ["MLflowCallback", "TensorBoardCallback", "WandbCallback"]
