"""The import lines of Ray's guides work with the root changed, where the frameworks are installed."""

from __future__ import annotations

import json
import subprocess
import sys

from support.compat import guide_imports
from support.frameworks.framework_contract import PATIENCE_S

LINES = guide_imports.lines(guide_imports.TRAIN) + guide_imports.lines(guide_imports.TUNE)
WITHOUT = ("horovod", "ax", "bayesopt", "bohb", "hyperopt", "nevergrad", "optuna", "zoopt")  # extras of other tests
SCRIPT = """
import json, sys
problems = []
for line in json.loads(sys.argv[1]):
    try:
        exec(line, {})
    except ImportError as error:
        problems.append([line, str(error)])
print(json.dumps(problems))
"""


def test_the_lines_of_the_guides() -> None:
    lines = [guide_imports.changed(line) for line in LINES if line not in guide_imports.NOT_HERE]
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, json.dumps(lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    problems = json.loads(done.stdout.splitlines()[-1])
    others = [f"pip install 'holdfast[{extra}]'" for extra in WITHOUT]
    assert [problem for problem in problems if not any(other in problem[1] for other in others)] == []
