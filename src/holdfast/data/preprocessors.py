"""Ray's preprocessors are left out; each name says what to use in its place."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(
        f"holdfast.data has no preprocessors, and no {name}. Instead, compute what it needs with mean, std, min, "
        "max or unique, and apply it with map_batches; or fit one of scikit-learn's to to_pandas(), and call its "
        "transform in map_batches. docs/data.md lists what is left out."
    )
