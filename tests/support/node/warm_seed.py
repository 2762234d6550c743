"""A script with a seed, and a copy of it that imports a module which takes long. Prints whose child each zygote is."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch  # noqa: F401  a seed is taken for it

from holdfast.node import seed
from holdfast.platform import processes

home = Path(sys.argv[1])
PATIENCE_S = 120.0


def parent_of_next() -> tuple[int, int]:
    grown = planted.grow()
    assert grown is not None
    pid, _control = grown
    controls.append(_control)
    fields = processes.stat_fields(pid)
    assert fields is not None
    return pid, int(fields[1])


def main() -> None:
    before = parent_of_next()
    planted.warm(["slow_module", "no_such_module"])
    meanwhile = parent_of_next()
    (home / "go").touch()
    deadline = time.monotonic() + PATIENCE_S
    while (after := parent_of_next())[1] == planted.pid and time.monotonic() < deadline:
        time.sleep(0.05)
    planted.warm(["slow_module"])
    again = parent_of_next()
    imported = [int(line) for line in (home / "imported").read_text().splitlines()]
    print(json.dumps({"seed": planted.pid, "zygotes": [before, meanwhile, after, again], "imported": imported}))


controls: list[object] = []
seed.plant([])
found = seed.planted()
assert found is not None
planted = found
main()
