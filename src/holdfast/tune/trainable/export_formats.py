"""``export_formats``: a class trainable exports its model when its trial ends well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import TuneError

from .trainable import Trainable


class ExportFormat:
    """The names that scripts from Ray use; ``Trainable._export_model`` defines their meaning."""

    CHECKPOINT = "checkpoint"
    MODEL = "model"
    ONNX = "onnx"
    H5 = "h5"

    @staticmethod
    def validate(formats: list[str]) -> None:
        """Refuse unknown formats, and put the names in the list into lower case."""
        known = (ExportFormat.CHECKPOINT, ExportFormat.MODEL, ExportFormat.ONNX, ExportFormat.H5)
        formats[:] = [name.strip().lower() for name in formats]
        for name in formats:
            if name not in known:
                raise TuneError(f"export format {name!r}: use one of {', '.join(known)}")


def with_export(trainable: Any, formats: Sequence[str]) -> Any:
    """The same class, which exports before it stops, unless its last step failed."""
    if not formats:
        return trainable
    if not (isinstance(trainable, type) and issubclass(trainable, Trainable)):
        raise ValueError("export_formats: only a class Trainable exports a model; a function can write files itself")

    def train(self: Any) -> dict[str, Any]:
        self._may_export = False
        result: dict[str, Any] = trainable.train(self)
        self._may_export = True
        return result

    def stop(self: Any) -> None:
        if getattr(self, "_may_export", False):
            self.export_model(list(formats))
        trainable.stop(self)

    own = {"train": train, "stop": stop, "__module__": trainable.__module__, "__doc__": trainable.__doc__}
    return type(trainable.__name__, (trainable,), own)
