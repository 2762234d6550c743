"""Ray Data's side of ``beside_ray``: ``python rays_answers.py FILE [CASE ...]`` writes down what it gives.

With names, only these cases are run, and the others in the file stay as they are.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray

from support.data.all_calls import CASES, outcome


def main(file: Path, names: list[str]) -> None:
    ray.init(address="local", num_cpus=4, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    found: dict[str, Any] = json.loads(file.read_text())["answers"] if names else {}
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as directory:
            found[name] = outcome(name, ray.data, Path(directory))
    file.write_text(json.dumps({"ray": ray.__version__, "answers": found}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
