"""These tests run with ``make frameworks`` alone. Jobs are scripts of their own: no file here imports a framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.frameworks.framework_contract import Job
from support.frameworks.framework_pages import TIMEOUT_S

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.frameworks)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    return Job(request.module.JOB, tmp_path)
