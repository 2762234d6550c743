"""The fault tests' torch training as a script: ``python torch_job.py STORAGE NAME CONFIG`` with CONFIG as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from support.faults.fault_training import losses, trainer, weights


def main() -> None:
    storage, name, config = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    result = trainer(storage, config, name=name).fit()
    steps = [step for step, _ in losses(result)]
    assert steps == list(range(1, len(steps) + 1)), "the history has a gap or a repetition"
    print(weights(result))


if __name__ == "__main__":
    main()
