"""Large objects shared by all trials: put once, read without a copy; and put again when the experiment is restored.

    python examples/tune_object_refs.py

A reference is valid only in the session that put the object. To restore, put the objects again and pass
``param_space`` again with the new references. Existing trials keep their hyperparameters.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import holdfast
from holdfast import tune


def trainable(config: dict[str, Any]) -> None:
    table = holdfast.get(config["table"])  # the memory is shared, and read-only
    tune.report({"sum": float(table.sum() * config["factor"])})


def space() -> dict[str, Any]:
    tables = [holdfast.put(np.full(1_000_000, value)) for value in (1.0, 2.0)]
    return {"table": tune.grid_search(tables), "factor": tune.grid_search([1, 10])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage-path", default=str(Path(tempfile.gettempdir()) / "holdfast-examples"))
    parser.add_argument("--run-name", default="tune-object-refs")
    args = parser.parse_args()
    path = str(Path(args.storage_path) / args.run_name)
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, trainable=trainable, param_space=space(), resume_errored=True)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space=space(),
            run_config=tune.RunConfig(name=args.run_name, storage_path=args.storage_path),
        )
    print(sorted(result.metrics["sum"] for result in tuner.fit()))


if __name__ == "__main__":
    main()
