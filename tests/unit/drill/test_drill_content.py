"""Checkpoints compared value by value, without ever running what is in them."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from holdfast.drill.content import compare


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return tmp_path / "a", tmp_path / "b"


def state(**changes: Any) -> dict[str, Any]:
    weights = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    return {"model": {"w": weights, "b": torch.zeros(2)}, "scheduler": {"last_epoch": 9}, "step": 9} | changes


def test_equal_checkpoints(pair: tuple[Path, Path]) -> None:
    for directory in pair:
        torch.save(state(), directory / "state.pt")
    assert compare(*pair) == (1, [])


def test_a_tensor_that_differs_is_named_and_measured(pair: tuple[Path, Path]) -> None:
    torch.save(state(), pair[0] / "state.pt")
    other = state()
    other["model"]["w"][1, 2] += 0.5
    torch.save(other, pair[1] / "state.pt")
    compared = compare(*pair)
    assert compared.differences == [("state.pt: model.w", "off by up to 0.5")]
    assert compared.values == 4


def test_equal_values_in_other_bytes_are_equal(pair: tuple[Path, Path]) -> None:
    torch.save(state(), pair[0] / "state.pt")
    torch.save(state(), pair[1] / "state.pt", _use_new_zipfile_serialization=False)
    assert compare(*pair).differences == []


def test_signs_of_zero_and_nan_are_bits(pair: tuple[Path, Path]) -> None:
    torch.save({"x": torch.tensor([0.0, float("nan")])}, pair[0] / "state.pt")
    torch.save({"x": torch.tensor([-0.0, float("nan")])}, pair[1] / "state.pt")
    assert [where for where, _ in compare(*pair).differences] == ["state.pt: x"]


def test_values_of_json(pair: tuple[Path, Path]) -> None:
    (pair[0] / "state.json").write_text(json.dumps({"step": 3, "rates": [0.1, 0.2]}))
    (pair[1] / "state.json").write_text(json.dumps({"step": 3, "rates": [0.1, 0.3]}))
    assert compare(*pair).differences == [("state.json: rates[1]", "0.2 became 0.3")]


def test_when_and_where_a_model_of_keras_was_saved_is_not_compared(pair: tuple[Path, Path]) -> None:
    for directory, number in zip(pair, [4, 5], strict=True):
        layer = {"units": number, "dtype": {"name": "float32", "shared_object_id": number}}
        with zipfile.ZipFile(directory / "model.keras", "w") as archive:
            archive.writestr("metadata.json", json.dumps({"keras_version": "3", "date_saved": f"2026-01-0{number}"}))
            archive.writestr("config.json", json.dumps({"config": layer}))
    assert compare(*pair).differences == [("model.keras: config.json.config.units", "4 became 5")]


def test_a_file_in_one_of_the_two(pair: tuple[Path, Path]) -> None:
    for directory in pair:
        (directory / "common").write_bytes(b"x")
    (pair[0] / "rank-0.bin").write_bytes(b"x")
    assert compare(*pair).differences == [("rank-0.bin", "only in one of the two")]


class Trap:
    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.mark),)


@pytest.mark.parametrize("name", ["state.pt", "state"])
def test_what_would_run_code_is_compared_by_its_bytes(pair: tuple[Path, Path], name: str, tmp_path: Path) -> None:
    for directory in pair:
        (directory / name).write_bytes(pickle.dumps(Trap(f"{tmp_path}/sprung-{directory.name}")))
    assert compare(*pair).differences == [(name, "other bytes")]
    assert not list(tmp_path.glob("sprung-*"))


def test_a_pickle_is_read_without_running_it(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in pair:
        (directory / "state.pkl").write_bytes(pickle.dumps(Trap(f"sprung-{directory.name}")))
    (found,) = compare(*pair).differences
    assert found == ("state.pkl: (arguments)[0].(arguments)[0]", "'sprung-a' became 'sprung-b'")
    assert not list(tmp_path.glob("sprung-*"))


class Estimator:
    """With attributes of many kinds, two of which may be one object."""

    def __init__(self, name: str, other: str, rate: float = 0.5) -> None:
        self.name, self.other, self.rate = name, other, rate
        self.weights = numpy.arange(6.0).reshape(2, 3)
        self.labels = {"a", "b", 3}
        self.by_pair = OrderedDict({("a", 1): [1, 2.5, None, True], "b": b"bytes"})
        self.itself = self


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_equal_objects_in_other_bytes_are_equal(pair: tuple[Path, Path], protocol: int) -> None:
    """Which parts are one object, and in which order a set was filled, is not a value."""
    name = "".join(["na", "me"])
    one, other = Estimator(name, name), Estimator(name, "".join(["na", "me"]))
    other.labels = {3, "b", "a"}
    (pair[0] / "model.pkl").write_bytes(pickle.dumps(one, protocol))
    (pair[1] / "model.pkl").write_bytes(pickle.dumps(other, protocol))
    assert (pair[0] / "model.pkl").read_bytes() != (pair[1] / "model.pkl").read_bytes()
    assert compare(*pair).differences == []


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_attributes_that_differ_are_named(pair: tuple[Path, Path], protocol: int) -> None:
    changed = Estimator("name", "name", rate=0.25)
    changed.labels.remove("b")
    changed.by_pair["a", 1][1] = 2.0
    changed.weights[1, 1] = -1
    (pair[0] / "model.pkl").write_bytes(pickle.dumps([Estimator("name", "name")], protocol))
    (pair[1] / "model.pkl").write_bytes(pickle.dumps([changed], protocol))
    where = [one.where.removeprefix("model.pkl: [0].") for one in compare(*pair).differences]
    assert [name.partition(".")[0] for name in where] == ["rate", "weights", "labels", "by_pair"]


def test_a_pickle_with_more_behind_it_is_compared_by_its_bytes(pair: tuple[Path, Path]) -> None:
    for number, directory in enumerate(pair):
        (directory / "two.pkl").write_bytes(pickle.dumps("same") + pickle.dumps(number))
    assert compare(*pair).differences == [("two.pkl", "other bytes")]
