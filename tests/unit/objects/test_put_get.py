"""Objects come back as they were put, and their memory is shared."""

from __future__ import annotations

import copy
import errno
import mmap
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.errors import StorageError, StorageFullError
from holdfast.objects import (
    ObjectLostError,
    ObjectRef,
    close,
    discard,
    exists,
    get,
    object_refs,
    object_session,
    open_session,
    packing,
    put,
)


@dataclass
class Thing:
    name: str
    parts: list[Any]


def owner_of(array: Any) -> Any:
    """What the memory of an array belongs to."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


@pytest.mark.parametrize(
    "value", [None, 0, "text", b"bytes", [1, [2]], {"a": (1, 2)}, {1, 2}, float("inf"), Thing("x", [1, "y"])]
)
def test_a_value_comes_back(value: Any) -> None:
    assert get(put(value)) == value


def test_functions_and_lambdas_can_be_put() -> None:
    offset = 3
    assert get(put(lambda x: x + offset))(4) == 7


def test_several_come_back_in_their_order() -> None:
    references = [put(number) for number in range(3)]
    assert get(references) == [0, 1, 2]
    assert get(tuple(references)) == [0, 1, 2]
    assert get([]) == []


def test_arrays_are_mapped_and_read_only() -> None:
    big = np.arange(1_000_000, dtype=np.float64)
    found = get(put({"big": big, "same": big, "turned": big.reshape(1000, 1000).T}))
    assert np.array_equal(found["big"], big)
    assert np.array_equal(found["turned"], big.reshape(1000, 1000).T)
    assert found["same"] is found["big"]
    assert isinstance(owner_of(found["big"]), mmap.mmap)
    assert isinstance(owner_of(found["turned"]), mmap.mmap)
    with pytest.raises(ValueError, match="read-only"):
        found["big"][0] = 1
    assert found["big"].ctypes.data % 64 == 0


def test_arrays_that_have_no_plain_memory_come_back_too() -> None:
    values = [np.array([], dtype=np.int32), np.arange(10)[::2], np.array([{"a": 1}, None], dtype=object)]
    for found, value in zip(get(put(values)), values, strict=True):
        assert np.array_equal(found, value)


def test_a_tensor_is_mapped_and_a_write_to_it_is_private() -> None:
    reference = put(torch.zeros(1_000_000))
    one, other = get(reference), get(reference)
    one += 1
    assert (one.sum().item(), other.sum().item(), get(reference).sum().item()) == (1_000_000, 0, 0)
    body, buffers = packing._pickled(torch.zeros(1_000_000))[0], packing.pack(torch.zeros(1_000_000))
    assert len(body) < 2000
    assert max(len(buffer) for buffer in buffers) == 4_000_000


def test_tensors_keep_what_they_are() -> None:
    base = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    weights = torch.nn.Parameter(torch.ones(2, 2))
    values = {"base": base, "row": base[1], "column": base[:, 1], "weights": weights, "none": torch.empty(0)}
    found = get(put(values))
    assert all(torch.equal(found[name], value) for name, value in values.items())
    assert isinstance(found["weights"], torch.nn.Parameter)
    assert found["weights"].requires_grad
    assert found["column"].stride() == base[:, 1].stride()
    found["base"][1, 1] = 77  # the others are views of it
    assert (found["row"][1].item(), found["column"][1].item()) == (77, 77)


def test_a_model_comes_back_and_trains() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[1].weight = model[0].weight
    found = get(put(model))
    assert found[1].weight is found[0].weight
    data = torch.ones(2, 4)
    assert torch.equal(found(data), model(data))
    torch.optim.SGD(found.parameters(), lr=0.1).zero_grad()
    found(data).sum().backward()
    torch.optim.SGD(found.parameters(), lr=0.1).step()
    assert not torch.equal(found(data), model(data))


def test_what_was_got_stays_when_its_session_ends() -> None:
    reference = put(np.arange(1000))
    found = get(reference)
    close()
    assert found.sum() == 499500
    assert not exists(reference)


def test_a_reference_is_small_and_equal_to_its_copies() -> None:
    reference = put(np.zeros(1_000_000))
    again = pickle.loads(pickle.dumps(reference))
    assert len(pickle.dumps(reference)) < 500
    assert again == reference == copy.deepcopy(reference)
    assert len({again, reference}) == 1
    assert reference != put(1)
    assert reference.session == open_session()
    assert get(again).shape == (1_000_000,)
    assert reference.hex() == reference.name


def test_a_lost_object_says_what_to_do() -> None:
    reference = put([1])
    close()
    with pytest.raises(ObjectLostError, match=r"pass it again with new ones: Tuner.restore\(path.*param_space="):
        get(reference)
    with pytest.raises(ObjectLostError, match=reference.session):
        get([put(2), reference])
    error = pickle.loads(pickle.dumps(ObjectLostError("words")))
    assert (type(error), str(error)) == (ObjectLostError, "words")


def test_an_object_can_be_let_go_early() -> None:
    one, other = put(1), put(2)
    discard(one)
    discard(one)
    assert (exists(one), exists(other)) == (False, True)


@pytest.mark.parametrize("wrong", [3, "ref", None, [1]])
def test_only_references_can_be_got(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"pass what holdfast.put\(\) returned"):
        get(wrong)


def test_what_cannot_be_put_is_said() -> None:
    with pytest.raises(TypeError, match="it is already a reference"):
        put(put(1))
    with pytest.raises(TypeError, match=r"put\(\): this list cannot be shared"):
        put([(number for number in range(3))])
    assert get(get(put([put(1)]))[0]) == 1


def test_a_full_disk_is_said_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = put(1)

    def full(fd: int, _parts: Any) -> None:
        os.write(fd, b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(packing, "write", full)
    with pytest.raises(StorageFullError, match="no space for"):
        put(np.zeros(1000))
    assert os.listdir(reference.place) == [reference.name]


def test_what_has_no_room_in_memory_goes_to_the_disk(places: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_session, "_free", lambda root: 10_000 if root == places[0] else 10_000_000)
    small, large = put(np.zeros(10)), put(np.zeros(1000))
    assert [Path(ref.place).parent for ref in (small, large)] == places
    assert get([small, large])[1].shape == (1000,)
    close()
    assert [os.listdir(root) for root in places] == [[], []]


def test_nothing_is_written_to_or_read_from_what_others_can_change(places: list[Path], tmp_path: Path) -> None:
    reference = put(1)
    os.chmod(reference.place, 0o777)
    with pytest.raises(ObjectLostError):
        get(reference)
    os.chmod(reference.place, 0o700)
    os.chmod(places[0], 0o770)
    with pytest.raises(ObjectLostError):
        get(reference)
    with pytest.raises(StorageError, match="other users can write to it"):
        put(1)
    os.chmod(places[0], 0o700)
    (tmp_path / "link").symlink_to(reference.place)
    with pytest.raises(ObjectLostError):
        get(ObjectRef(reference.session, reference.name, place=str(tmp_path / "link")))


def test_the_places_are_memory_first_and_then_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    own = f"holdfast-objects-{os.geteuid()}"
    monkeypatch.setattr(object_session, "_MEMORY", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", "/elsewhere")
    assert object_session._roots() == [tmp_path / own, Path("/elsewhere", own)]
    monkeypatch.setattr(object_session, "_MEMORY", str(tmp_path / "missing"))
    assert object_session._roots() == [Path("/elsewhere", own)]


class Cart:
    """Of an engine that spans machines: this one has everything on the other machine, and brings it here."""

    def __init__(self, here: Path) -> None:
        self._here = here
        self.is_open = True
        self.there: dict[str, bytes] = {}
        self.ways = 0

    def send(self, path: Path) -> str:
        self.there[path.name] = path.read_bytes()
        return "by cart"

    def fetch(self, ref: ObjectRef) -> Path:
        self.ways += 1
        if not self.has(ref):
            raise object_refs.lost(ref)
        path = self._here / ref.name
        path.write_bytes(self.there[ref.name])
        return path

    def has(self, ref: ObjectRef) -> bool:
        return ref.name in self.there

    def discard(self, ref: ObjectRef) -> None:
        self.there.pop(ref.name, None)


def test_a_reference_that_is_sent_is_fetched_by_the_engines_carrier(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cart = Cart(tmp_path)
    monkeypatch.setattr(object_refs, "_own_carrier", cart)
    here = put({"rows": [1, 2]})
    assert copy.deepcopy(here) is here
    assert not cart.there, "who stays here needs no cart"
    there = pickle.loads(pickle.dumps(here))
    assert there == here
    Path(here.place, here.name).unlink()  # on the other machine there is none
    assert not exists(here)
    assert exists(there)
    assert get(there) == {"rows": [1, 2]}
    assert cart.ways == 1
    discard(there)
    assert not exists(there)
    with pytest.raises(ObjectLostError, match="Put the object again"):
        get(there)


def test_a_carrier_that_is_closed_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cart = Cart(tmp_path)
    monkeypatch.setattr(object_refs, "_own_carrier", cart)
    sent = pickle.loads(pickle.dumps(put("here")))
    cart.is_open = False
    assert get(pickle.loads(pickle.dumps(sent))) == "here"
    assert get(pickle.loads(pickle.dumps(put("too")))) == "too"
    assert (cart.ways, list(cart.there)) == (0, [sent.name])


def test_a_reference_to_what_is_lost_can_still_be_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(object_refs, "_own_carrier", Cart(tmp_path))
    gone = put("gone")
    Path(gone.place, gone.name).unlink()
    with pytest.raises(ObjectLostError):
        get(pickle.loads(pickle.dumps(gone)))
