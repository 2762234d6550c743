"""Functions for a torch loop, under the path from which scripts from Ray import them."""

from __future__ import annotations

from holdfast.train.torch import enable_reproducibility as enable_reproducibility
from holdfast.train.torch import get_device as get_device
from holdfast.train.torch import get_devices as get_devices
from holdfast.train.torch import prepare_data_loader as prepare_data_loader
from holdfast.train.torch import prepare_model as prepare_model
