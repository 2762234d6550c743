"""Every name of Ray Data's is here, or is listed as left out with what to use in its place."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast.data
from holdfast.data import DataIterator, Dataset, left_out

SAID = {"set_name", "get_dataset_id", "map_batches_internal"}  # of Ray's own workings


@pytest.fixture(scope="module")
def names_of_ray() -> dict[str, list[str]]:
    code = (
        "import ray.data as d, json;"
        "public = lambda kind: [n for n in dir(kind) if not n.startswith('_')];"
        "found = {'module': list(d.__all__), 'Dataset': public(d.Dataset), 'Iterator': public(d.DataIterator)};"
        "print(json.dumps(found))"
    )
    import json

    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=100)
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_each_method_is_here_or_listed(names_of_ray: dict[str, list[str]]) -> None:
    ours = set(dir(Dataset)) | {"name"}
    assert set(names_of_ray["Dataset"]) - ours - set(left_out.DATASET) - SAID == set()
    assert not set(left_out.DATASET) & set(dir(Dataset)), "what is here is not left out"


def test_each_name_of_the_module_is_here_or_listed(names_of_ray: dict[str, list[str]]) -> None:
    assert holdfast.data.NodeIdStr is str
    assert set(names_of_ray["module"]) - set(holdfast.data.__all__) - set(left_out.MODULE) == {"NodeIdStr"}
    assert not set(left_out.MODULE) & set(holdfast.data.__all__), "what is here is not left out"


def test_an_import_says_what_to_use() -> None:
    with pytest.raises(ImportError, match=r"has no read_sql\. In its place: .*map_batches"):
        from holdfast.data import read_sql  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(ImportError, match=r"no StandardScaler.*scikit-learn"):
        from holdfast.data.preprocessors import StandardScaler  # type: ignore[attr-defined]  # noqa: F401
    assert not hasattr(holdfast.data, "read_sql")


def test_each_method_of_an_iterator_is_here(names_of_ray: dict[str, list[str]]) -> None:
    assert set(names_of_ray["Iterator"]) - set(dir(DataIterator)) <= {"iter_jax_batches", "to_torch"}
