"""A script as the workers of a run: each runs it as ``__main__``."""

from __future__ import annotations

import runpy
from dataclasses import dataclass


@dataclass(frozen=True)
class Script:
    """The train function: runs a file, or a module as ``python -m`` does. ``sys.argv`` is the session's already."""

    target: str
    is_module: bool

    def __call__(self) -> None:
        try:
            if self.is_module:
                runpy.run_module(self.target, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(self.target, run_name="__main__")
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                raise
