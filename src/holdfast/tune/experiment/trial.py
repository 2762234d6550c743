"""``Trial`` and ``ExportFormat``, under the path that scripts from Ray import them from."""

from __future__ import annotations

from holdfast.tune.experiment import Trial as Trial
from holdfast.tune.trainable.export_formats import ExportFormat as ExportFormat
