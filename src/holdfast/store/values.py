"""Values as strict JSON, without losing what plain JSON cannot hold.

A tagged object, which has one key that starts with "$", stands for NaN and infinities, big integers, bytes, text that
is not valid Unicode, dicts that JSON cannot hold (with keys that are not strings, or that start with "$"), and the
types of ``typed_values``: arrays, sets, times, paths.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.store import typed_values

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_SIMPLE = frozenset({str, bool, type(None)})
_INT_LIMIT = 1 << 63
_MOST_TENSOR = 1 << 18  # bytes of a tensor that can be stored
_MOST_TEXT = 500  # characters stored of any other object
_FLOATS = ("nan", "inf", "-inf")


def encode(value: Any, name: str = "value") -> bytes:
    """Encode the value. If a part cannot be stored, the TypeError shows the way from ``name`` to its key."""
    try:
        if is_plain(value):
            return _encoder.encode(value)
    except UnicodeEncodeError:
        pass
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply or contains itself") from None
    try:
        return _encoder.encode(_tagged(value, name))
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply or contains itself") from None


def decode(data: bytes) -> Any:
    """The value that was encoded. ValueError if ``encode`` did not make these bytes."""
    try:
        value = _decoder.decode(data)
        return _untagged(value) if b'"$' in data else value
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a stored value: {error}") from None


def prepare(kind: type[msgspec.Struct]) -> None:
    """Call this before threads decode the type. msgspec learns a type at its first use, and two threads that do this at
    the same time crash the process."""
    msgspec.json.Decoder(kind)


def is_plain(value: Any) -> bool:
    """Whether JSON can hold the value as it is. The common case, a dict of floats, must be fast."""
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or key[:1] == "$":
                return False
            kind = type(item)
            if kind is float:
                if item - item != 0.0:  # NaN and infinities
                    return False
            elif kind not in _SIMPLE and not is_plain(item):
                return False
        return True
    if kind is float:
        return bool(value - value == 0.0)
    if kind is int:
        return bool(-_INT_LIMIT <= value < _INT_LIMIT)
    if kind is list or kind is tuple:
        return all(map(is_plain, value))
    return kind in _SIMPLE


def _tagged(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        return _tagged_dict(value, path)
    if isinstance(value, (list, tuple)):
        return [_tagged(item, f"{path}[{position}]") for position, item in enumerate(value)]
    return _tagged_scalar(value, path)


def _tagged_dict(value: Mapping[Any, Any], path: str) -> dict[str, Any]:
    if all(type(key) is str and key[:1] != "$" and _is_text(key) for key in value):
        return {key: _tagged(item, f"{path}[{key!r}]") for key, item in value.items()}
    pairs = []
    for key, item in value.items():
        where = f"{path}[{key!r}]"
        pairs.append([_tagged_scalar(key, f"the key of {where}"), _tagged(item, where)])
    return {"$dict": pairs}


def _tagged_scalar(value: Any, path: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = str.__str__(value)
        return text if _is_text(text) else {"$str": _base64(text.encode("utf-8", "surrogatepass"))}
    if isinstance(value, float):
        number = float(value)
        return number if number - number == 0.0 else {"$float": repr(number)}
    if isinstance(value, int):
        whole = int(value)
        return whole if -_INT_LIMIT <= whole < _INT_LIMIT else {"$int": hex(whole)}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": _base64(bytes(value))}
    scalar = _single_item(value)
    if scalar is not None:
        return _tagged_scalar(scalar, path)
    try:
        return {"$typed": typed_values.to_json(value, path)}
    except TypeError:
        pass
    if callable(getattr(value, "tolist", None)) and 0 < getattr(value, "nbytes", 0) <= _MOST_TENSOR:
        return _tagged(value.tolist(), path)  # a tensor
    raise TypeError(_not_storable(value, path))


def as_text(value: Any) -> Any:
    """The value, with text in place of everything that cannot be encoded."""
    if isinstance(value, Mapping):
        return {key if type(key) in (str, int) else repr(key): as_text(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_text(item) for item in value]
    try:
        encode(value)
    except TypeError:
        kind: Any = type(value)
        has_own = kind.__repr__ is not object.__repr__  # without the object's address, which is meaningless
        return repr(value)[:_MOST_TEXT] if has_own else f"<{type(value).__module__}.{type(value).__qualname__}>"
    return value


def _single_item(value: Any) -> Any:
    """The Python scalar in a one-element numpy or torch value, without importing either; None for other values."""
    item = getattr(value, "item", None)
    if callable(item):
        try:
            scalar = item()
        except (TypeError, ValueError, RuntimeError):
            return None
        if isinstance(scalar, (bool, int, float, str, bytes)):
            return scalar
    return None


def _not_storable(value: Any, path: str) -> str:
    kind = type(value)
    shape = getattr(value, "shape", None)
    of_shape = f" of shape {tuple(shape)}" if isinstance(shape, tuple) and shape else ""
    return (
        f"{path} is a {kind.__module__}.{kind.__qualname__}{of_shape}; report numbers, strings, booleans, None, bytes, "
        "small arrays, and lists and dicts of them"
    )


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    for key in value:
        if key.startswith("$"):
            return _untag(value)
    return {key: _untagged(item) for key, item in value.items()}


def _untag(value: dict[str, Any]) -> Any:
    try:
        ((tag, content),) = value.items()
        if tag == "$float":
            return float(_FLOATS[_FLOATS.index(content)])  # a new NaN each time: as keys of a dict they are not equal
        if tag == "$int":
            return int(content, 16)
        if tag == "$bytes":
            return base64.b64decode(content, validate=True)
        if tag == "$str":
            return base64.b64decode(content, validate=True).decode("utf-8", "surrogatepass")
        if tag == "$typed":
            return typed_values.from_json(content, typed_values.shown)
        if tag == "$dict":
            return {_untagged(key): _untagged(item) for key, item in content}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a stored value: {error!r}") from None
    raise ValueError(f"not a stored value: unknown tag {tag!r}")


def _is_text(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
