"""Holdfast: distributed training and tuning that survives."""

import sys

if sys.platform == "win32":
    raise ImportError("Holdfast does not run on Windows. Use Linux, macOS, or Linux under WSL 2.")

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "LocalCluster":
        from holdfast.engine.local.local_cluster import LocalCluster

        return LocalCluster
    if name in ("cluster_resources", "init", "is_initialized", "shutdown"):
        from holdfast.engine import initial

        return getattr(initial, name)
    if name in ("put", "get"):
        from holdfast import objects

        return getattr(objects, name)
    if name == "data":
        import importlib

        return importlib.import_module("holdfast.data")
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
