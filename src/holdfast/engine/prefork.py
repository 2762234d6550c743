"""Where a script's process tree gets its seed: at the import of a framework's trainer, before anything has run."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from holdfast import settings
from holdfast.node import seed


def prefork(framework: Sequence[str], modules: Sequence[str], slow: Sequence[str] = ()) -> None:
    """Import the framework and take the snapshot with these modules imported in it, and with the slow ones if there is
    time. Does nothing more than the import if the setting is off."""
    in_force = settings.load()
    if in_force.prefork and in_force.start_method == "fork":
        for name in framework:
            importlib.import_module(name)
        seed.plant(modules, slow)
