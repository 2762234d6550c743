"""Holdfast: distributed training and tuning that survives."""

import sys

if sys.platform == "win32":
    raise ImportError("Holdfast does not run on Windows. Use Linux, macOS, or Linux under WSL 2.")

__version__ = "0.1.0"
