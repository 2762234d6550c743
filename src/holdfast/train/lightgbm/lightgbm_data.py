"""Data frames as LightGBM takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def normalize_pandas_for_lightgbm(df: pd.DataFrame) -> pd.DataFrame:
    """Numbers and booleans that Arrow holds as pandas' own nullable columns: LightGBM refuses those of Arrow, which a
    dataset's ``to_pandas()`` may have. Other columns stay as they are."""
    import pandas as pd

    changed: dict[Any, str] = {}
    for column, dtype in df.dtypes.items():
        if not isinstance(dtype, pd.ArrowDtype):
            continue
        if dtype.kind == "b":
            changed[column] = "boolean"
        elif dtype.kind in "iuf":
            name = {"i": "Int", "u": "UInt", "f": "Float"}[dtype.kind]
            changed[column] = f"{name}{max(dtype.itemsize * 8, 32 if dtype.kind == 'f' else 8)}"
    return df.astype(changed) if changed else df
