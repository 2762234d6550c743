"""Two checkpoints compared: file by file, and inside files that can be read without running code, value by value."""

from __future__ import annotations

import io
import json
import math
import os
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.drill import pickled_values
from holdfast.drill.watching import tensor_bytes
from holdfast.store.staging import describe

RANDOM = "another random state"  # of a generator; its name follows
_TORCH_STATE = 5056  # bytes, of the generator on the CPU
OPAQUE = "other bytes"  # of a file that cannot be read: perhaps only an id or a date in it differs
_DISTRIBUTED = ".distcp"


class Difference(NamedTuple):
    where: str  # the file, and inside it the name of the tensor or value
    what: str


class Compared(NamedTuple):
    values: int  # how many files, tensors and values were compared
    differences: list[Difference]


def compare(expected: Path, found: Path) -> Compared:
    """Files with equal bytes are equal; the content of others is compared."""
    before = {entry.path: entry.digest for entry in describe(expected)}
    after = {entry.path: entry.digest for entry in describe(found)}
    count, differences = 0, []
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            count += 1
            differences.append(Difference(name, "only in one of the two"))
        elif before[name] == after[name]:
            count += 1
        else:
            values = list(_compare_file(expected / name, found / name))
            count += max(1, len(values))
            differences += [Difference(f"{name}: {where}" if where else name, what) for where, what in values if what]
    return Compared(count, differences)


def _compare_file(expected: Path, found: Path) -> Iterator[tuple[str, str]]:
    """The place and the difference of each value; the difference is empty if the two are equal."""
    try:
        yield from list(_compare(_load(expected), _load(found), "", set()))
    except Exception:
        yield "", OPAQUE


def _load(path: Path) -> Any:
    """Never executes the content of the file."""
    if path.suffix == ".json":
        return json.loads(path.read_text())
    if path.suffix == ".npz" or path.suffix == ".npy":
        import numpy

        loaded = numpy.load(path, allow_pickle=False)
        return dict(loaded) if path.suffix == ".npz" else loaded
    if path.suffix in (".pkl", ".pickle", ".joblib"):
        return pickled_values.read(path.read_bytes())
    if path.suffix == ".keras":
        return _keras_model(path)
    if path.suffix in (".txt", _DISTRIBUTED):
        raise ValueError("not looked into")
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that it may be unable to read
        return torch.load(path, map_location="cpu", weights_only=True)


def _keras_model(path: Path) -> dict[str, Any]:
    """An archive with JSON and with arrays in HDF5."""
    members: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            members[name] = json.loads(content, object_hook=_lasting) if name.endswith(".json") else content
            if name.endswith(".h5"):
                members[name] = _arrays(content)
    return members


def _lasting(found: dict[str, Any]) -> dict[str, Any]:
    """Without the date when the model was saved, and addresses in the memory of the process that saved it."""
    return {name: value for name, value in found.items() if name not in ("date_saved", "shared_object_id")}


def _arrays(hdf5: bytes) -> dict[str, Any]:
    import h5py  # Keras has it

    found: dict[str, Any] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(io.BytesIO(hdf5), "r") as file:
        file.visititems(take)
    return found


def _compare(before: Any, after: Any, where: str, seen: set[tuple[int, int]]) -> Iterator[tuple[str, str]]:
    """``seen``: pairs that were compared already. A pickle may have one object in many places, also inside itself."""
    if isinstance(before, (Mapping, list, tuple)):
        if (id(before), id(after)) in seen:
            return
        seen.add((id(before), id(after)))
    source = _generator(before)
    if source and source == _generator(after):
        yield where, "" if same(before, after) else f"{RANDOM} of {source}"
    elif _is_rng_state(before) and _is_rng_state(after):
        for source in before:
            alike = same(before[source], after[source])
            yield f"{where}.{source}" if where else source, "" if alike else f"{RANDOM} of {source}"
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            inside = f"{where}.{key}" if where else str(key)
            if key not in before or key not in after:
                yield inside, "only in one of the two"
            else:
                yield from _compare(before[key], after[key], inside, seen)
    elif isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _compare(one, other, f"{where}[{number}]", seen)
    else:
        yield where, "" if same(before, after) else _distance(before, after)


def _is_rng_state(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {"python", "numpy", "torch", "cuda"}


def _generator(value: Any) -> str:
    """Whose state it looks like, wherever the script saved it: what get_state(), bit_generator.state, getstate() and
    get_rng_state() return."""
    if isinstance(value, Mapping):
        return "numpy" if isinstance(value.get("bit_generator"), str) and "state" in value else ""
    if _is_tensor(value):
        return "torch" if str(value.dtype) == "torch.uint8" and tuple(value.shape) == (_TORCH_STATE,) else ""
    if isinstance(value, (list, tuple)) and len(value) == 5 and isinstance(value[0], str) and value[0] == "MT19937":
        return "numpy"
    if isinstance(value, (list, tuple)) and len(value) == 3 and isinstance(value[0], int) and value[0] == 3:
        return "python" if isinstance(value[1], (list, tuple)) and len(value[1]) == 625 else ""
    return ""


def same(before: Any, after: Any) -> bool:
    """Bit for bit; NaN is NaN."""
    if _is_tensor(before) and _is_tensor(after):
        alike = before.dtype == after.dtype and before.shape == after.shape
        return bool(alike) and tensor_bytes(before) == tensor_bytes(after)
    if _is_array(before) and _is_array(after):
        alike = before.dtype == after.dtype and before.shape == after.shape
        return bool(alike) and bool(before.tobytes() == after.tobytes())
    if isinstance(before, float) and isinstance(after, float):
        return before == after or (math.isnan(before) and math.isnan(after))
    if type(before) is not type(after):
        return False
    if isinstance(before, Mapping):
        return before.keys() == after.keys() and all(same(before[key], after[key]) for key in before)
    if isinstance(before, (list, tuple)):
        return len(before) == len(after) and all(same(one, two) for one, two in zip(before, after, strict=True))
    return bool(before == after)


def _distance(before: Any, after: Any) -> str:
    if _is_tensor(before) and _is_tensor(after) and before.shape == after.shape:
        if before.is_floating_point() and after.is_floating_point():
            return f"off by up to {float((before.double() - after.double()).abs().max()):.3g}"
        return "other values"
    if _is_array(before) and _is_array(after) and before.shape == after.shape:
        if before.dtype.kind == after.dtype.kind == "f":
            return f"off by up to {float(abs(before.astype(float) - after.astype(float)).max()):.3g}"
        return "other values"
    if isinstance(before, (bytes, bytearray)) and isinstance(after, (bytes, bytearray)):
        return OPAQUE
    return f"{shown(before)} became {shown(after)}"


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_array(value: Any) -> bool:
    """Whether it is an array or a number of NumPy."""
    return hasattr(value, "tobytes") and hasattr(value, "dtype")


def size(checkpoint: Path) -> int:
    return sum(os.path.getsize(checkpoint / entry.path) for entry in describe(checkpoint))
