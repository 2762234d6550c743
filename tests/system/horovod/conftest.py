"""These tests run with ``make horovod`` alone, in an environment that has Horovod. Jobs are scripts of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.frameworks.framework_contract import Job
from support.frameworks.framework_pages import TIMEOUT_S

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.horovod)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job("horovod_job.py", tmp_path)
