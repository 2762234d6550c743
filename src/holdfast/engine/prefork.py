"""Where a script's process tree gets its seed: at the import of a framework's trainer, before anything has run."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import settings
from holdfast.node import seed


def prefork(modules: Sequence[str], slow: Sequence[str]) -> None:
    """Take the snapshot, with these modules imported in it, and the slow ones if there is time; unless that is switched
    off."""
    in_force = settings.load()
    if in_force.prefork and in_force.start_method == "fork":
        import torch  # noqa: F401  the snapshot is taken for it

        seed.plant(modules, slow)
