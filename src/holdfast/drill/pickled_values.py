"""The values in a pickle, read without running it: classes and functions are names, and nothing is imported or called.

Equal objects may be pickled to different bytes: it depends on which of their parts are the same object. So a drill
compares what the opcodes build. An object becomes a mapping of its attributes, with its class and arguments under names
in parentheses. Pickles of joblib, which has the bytes of arrays between the opcodes, are read too.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import pickletools
import zlib
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

CALLED, ARGUMENTS, STATE, ITEMS = "(class)", "(arguments)", "(state)", "(items)"
_COMPRESSED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x78": zlib.decompress,
    b"\x1f\x8b": gzip.decompress,
    b"BZ": bz2.decompress,
    b"\xfd7zXZ": lzma.decompress,
    b"\x5d\x00": lzma.decompress,
}
_JOBLIB_ARRAY = "joblib.numpy_pickle.NumpyArrayWrapper"
_SETS = [(f"{module}.{name}",) for module in ("builtins", "__builtin__") for name in ("set", "frozenset")]


class Name(NamedTuple):
    """The name of a class or a function."""

    text: str


class Made(dict[str, Any]):
    """An object: the function that was called for it, its arguments, and the attributes that were set."""


def read(content: bytes) -> Any:
    """ValueError if this is not one whole pickle, or has a part that is elsewhere."""
    for prefix, decompress in _COMPRESSED.items():
        if content.startswith(prefix):
            content = decompress(content)
            break
    file = io.BytesIO(content)
    value = _Machine(file).run()
    if file.read(1):
        raise ValueError("more than a pickle")
    return value


class _Machine:
    def __init__(self, file: io.BytesIO) -> None:
        self._file = file
        self._stack: list[Any] = []
        self._marked: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        for opcode, argument, _ in pickletools.genops(self._file):
            if opcode.name == "STOP":
                return self._stack.pop()
            step = getattr(self, f"_{opcode.name.lower()}", None)
            if step is not None:
                step(argument)
            elif opcode.name in _CONSTANTS:
                self._push(_CONSTANTS[opcode.name]() if argument is None else argument)
            elif opcode.name not in ("PROTO", "FRAME"):
                raise ValueError(f"a pickle with {opcode.name}")
        raise ValueError("a pickle without an end")

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _take(self, count: int) -> list[Any]:
        if count > len(self._stack):
            raise ValueError("a damaged pickle")
        at = len(self._stack) - count
        taken, self._stack[at:] = self._stack[at:], []
        return taken

    def _take_marked(self) -> list[Any]:
        taken, self._stack = self._stack, self._marked.pop()
        return taken

    def _mark(self, _: Any) -> None:
        self._marked.append(self._stack)
        self._stack = []

    def _pop_mark(self, _: Any) -> None:
        self._take_marked()

    def _pop(self, _: Any) -> None:
        self._take(1)

    def _dup(self, _: Any) -> None:
        self._push(self._stack[-1])

    def _memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    _binput = _long_binput = _put

    def _get(self, index: int) -> None:
        self._push(self._memo[index])

    _binget = _long_binget = _get

    def _tuple(self, _: Any) -> None:
        self._push(tuple(self._take_marked()))

    def _tuple1(self, _: Any) -> None:
        self._push(tuple(self._take(1)))

    def _tuple2(self, _: Any) -> None:
        self._push(tuple(self._take(2)))

    def _tuple3(self, _: Any) -> None:
        self._push(tuple(self._take(3)))

    def _list(self, _: Any) -> None:
        self._push(self._take_marked())

    def _append(self, _: Any) -> None:
        self._extend(self._take(1))

    def _appends(self, _: Any) -> None:
        self._extend(self._take_marked())

    def _extend(self, values: list[Any]) -> None:
        onto = self._stack[-1]
        (onto.setdefault(ITEMS, []) if isinstance(onto, Made) else onto).extend(values)

    def _dict(self, _: Any) -> None:
        self._push(_pairs(self._take_marked()))

    def _setitem(self, _: Any) -> None:
        self._update(self._take(2))

    def _setitems(self, _: Any) -> None:
        self._update(self._take_marked())

    def _update(self, values: list[Any]) -> None:
        onto = self._stack[-1]
        (onto.setdefault(ITEMS, {}) if isinstance(onto, Made) else onto).update(_pairs(values))

    def _additems(self, _: Any) -> None:
        values = _set(self._take_marked())
        self._stack[-1].update(values)

    def _frozenset(self, _: Any) -> None:
        self._push(_set(self._take_marked()))

    def _global(self, argument: str) -> None:
        self._push(Name(argument.replace(" ", ".", 1)))

    def _stack_global(self, _: Any) -> None:
        self._push(Name(".".join(self._take(2))))

    def _inst(self, argument: str) -> None:
        self._call(Name(argument.replace(" ", ".", 1)), self._take_marked())

    def _obj(self, _: Any) -> None:
        called, *arguments = self._take_marked()
        self._call(called, arguments)

    def _reduce(self, _: Any) -> None:
        self._call(*self._take(2))

    _newobj = _reduce

    def _newobj_ex(self, _: Any) -> None:
        called, arguments, named = self._take(3)
        self._call(called, [*arguments, named])

    def _call(self, called: Any, arguments: Any) -> None:
        if called in _SETS and len(arguments) == 1:
            arguments = [_set(arguments[0])]
        self._push(Made({CALLED: called, ARGUMENTS: list(arguments)}))

    def _build(self, _: Any) -> None:
        (state,) = self._take(1)
        onto = self._stack[-1]
        parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)  # the other part: of slots
        if all(part is None or (isinstance(part, dict) and not isinstance(part, Made)) for part in parts):
            for part in parts:
                onto.update(part or {})
        else:
            onto[STATE] = state
        if onto.get(CALLED) == Name(_JOBLIB_ARRAY):
            self._stack[-1] = self._joblib_array(onto)

    def _joblib_array(self, wrapper: Made) -> Any:
        """joblib writes the array after its description, and does not give it a number in the memo."""
        import numpy

        dtype = _dtype(wrapper["dtype"])
        if dtype.hasobject:
            return _Machine(self._file).run()
        if wrapper.get("numpy_array_alignment_bytes") is not None:
            self._file.read(self._file.read(1)[0])
        shape = wrapper["shape"]
        array = numpy.frombuffer(self._file.read(math.prod(shape) * dtype.itemsize), dtype)
        array = array.reshape(shape[::-1]).T if wrapper["order"] == "F" else array.reshape(shape)
        if dtype.names is None:
            return array
        return {name: array[name] for name in dtype.names}  # without what lies between the fields


def _dtype(made: Any) -> Any:
    """The numpy type of a pickle's description: a letter with a size, then the byte order and perhaps fields."""
    import numpy

    (text, *_), (_, order, _, names, fields, size, *_) = made[ARGUMENTS], made[STATE]
    if made[CALLED] != Name("numpy.dtype") or not isinstance(text, str):
        raise ValueError("an unknown type of numbers")
    if names is None:
        return numpy.dtype(text).newbyteorder(order)
    formats, offsets = [_dtype(fields[name][0]) for name in names], [fields[name][1] for name in names]
    return numpy.dtype({"names": list(names), "formats": formats, "offsets": offsets, "itemsize": size})


def _pairs(values: list[Any]) -> dict[Any, Any]:
    return {_key(key): value for key, value in zip(values[::2], values[1::2], strict=True)}


def _set(values: list[Any]) -> dict[Any, Any]:
    """Its order depends on how it was filled."""
    return {_key(value): value for value in values}


def _key(value: Any) -> Hashable:
    """Equal for equal values, also where these are objects."""
    return value if isinstance(value, (str, int, float, bytes, Name, type(None))) else repr(value)


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": dict,
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"), int),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE"), str),
    **dict.fromkeys(("SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), str),
}
