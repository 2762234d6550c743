"""Where this machine keeps the files of runs on object stores: pending checkpoints, reports, and what was downloaded.

All of it lies below one private directory of the user, so that no other user can read it or put something there.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from holdfast.private_dirs import make_private

REMEDY = "Set HOLDFAST_SCRATCH_DIR to a directory of your own, or remove it."


def scratch_root(scratch_dir: str) -> Path:
    """``scratch_dir`` is the setting; empty: the temporary directory."""
    return Path(os.path.abspath(os.path.expanduser(scratch_dir) or tempfile.gettempdir()), f"holdfast-{os.geteuid()}")


def make_scratch_root(scratch_dir: str) -> Path:
    return make_private(scratch_root(scratch_dir), REMEDY)
