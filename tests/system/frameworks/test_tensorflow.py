"""TensorFlow: Keras over two workers resumes after its last epoch, and ends as if nothing had happened."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

from holdfast.drill.content import compare
from support.frameworks.framework_contract import Job, check_kills

JOB = "tensorflow_job.py"


def test_a_killed_worker_and_a_killed_driver(job: Job) -> None:
    check_kills(job, worker=3, rank=1, driver=5, rounds=list(range(1, 7)), source=2)


def test_a_drill_compares_the_arrays_of_a_model(tmp_path: Path) -> None:
    import h5py

    for name, bias in (("before", 0.5), ("after", 0.75)):
        arrays = io.BytesIO()
        with h5py.File(arrays, "w") as file:
            file["layers/dense/vars/0"] = [1.0, 2.0]
            file["layers/dense/vars/1"] = [bias]
        (tmp_path / name).mkdir()
        with zipfile.ZipFile(tmp_path / name / "model.keras", "w") as archive:
            archive.writestr("metadata.json", json.dumps({"date_saved": name}))
            archive.writestr("model.weights.h5", arrays.getvalue())
    compared = compare(tmp_path / "before", tmp_path / "after")
    assert compared.differences == [("model.keras: model.weights.h5.layers/dense/vars/1", "off by up to 0.25")]
    assert compared.values == 2
