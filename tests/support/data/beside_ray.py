"""The same calls with Ray Data and with holdfast.data.

A case is given the library, and an empty directory; what it returns is turned into plain values, with the types of
arrays, columns and Python objects. ``answers_of_ray.json`` has what Ray Data gave: ``rays_answers.py`` makes it again.
``DELIBERATE`` names the cases in which the two differ on purpose; ``docs/data.md`` has the reasons for users.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

Case = Callable[..., Any]  # of the library, and of a directory if it has a second argument
CASES: dict[str, Case] = {}
DELIBERATE: dict[str, str] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def differs(reason: str) -> Callable[[Case], Case]:
    def mark(function: Case) -> Case:
        DELIBERATE[function.__name__] = reason
        return case(function)

    return mark


class Anyhow:
    """Values whose order, or split over batches, is left to each library."""

    def __init__(self, values: Any) -> None:
        self.values = sorted(values, key=repr)


def plain(value: Any) -> Any:
    """Of JSON, with the names of types where they matter."""
    if isinstance(value, Anyhow):
        return [plain(item) for item in value.values]
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return "nan" if value != value else round(value, 9)
    if isinstance(value, np.ndarray):
        return {"array": str(value.dtype), "shape": list(value.shape), "of": [plain(item) for item in value.tolist()]}
    if type(value) in (list, tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, pa.Table):
        return {"table": plain(value.schema), "of": plain(value.to_pylist())}
    if isinstance(value, pa.Schema):
        return [[field.name, str(field.type)] for field in value]
    if isinstance(value, pd.DataFrame):
        return {"frame": {name: plain(list(value[name])) for name in value.columns}, "rows": len(value)}
    if type(value).__module__.startswith("torch"):
        return {"tensor": str(value.dtype), "of": plain(value.tolist())}
    if type(value).__name__ == "Schema":
        return plain(value.base_schema)
    return f"{type(value).__name__}: {value}"


def raised(call: Callable[[], Any]) -> str:
    """What is raised, by kind: the words are each library's own."""
    try:
        return f"nothing, but {plain(call())}"
    except Exception:
        return "an error"


def rows_of(dataset: Any) -> list[Any]:
    return list(dataset.iter_rows())


def ids(dataset: Any) -> list[int]:
    return [row["id"] for row in dataset.iter_rows()]


def whole(dataset: Any) -> Any:
    """Rows, schema and a numpy batch."""
    return [rows_of(dataset), dataset.schema(), dataset.take_batch(100)]


def outcome(name: str, library: Any, directory: Path) -> Any:
    """What the case gives with this library."""
    function = CASES[name]
    given = [library, directory][: len(inspect.signature(function).parameters)]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return json.loads(json.dumps(plain(function(*given))))
        except Exception:
            return {"broke off": True}
