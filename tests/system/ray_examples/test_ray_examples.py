"""The examples in Ray's wheel that need no GPU, data set or service run with nothing but the import root changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.compat import example_scripts

pytestmark = [pytest.mark.searchers, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", example_scripts.to_run())
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    done = example_scripts.run(name, tmp_path)
    if name in example_scripts.REFUSED:
        assert done.returncode != 0
        assert example_scripts.REFUSED[name] in done.stderr, done.stderr[-3000:]
    else:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
