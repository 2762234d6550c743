"""The runs that all tests in a browser look at, the server that shows them, and a tab."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.object_stores.fixtures import obstore_is_running  # noqa: F401
from support.web.browsing import Tab, browser_tab
from support.web.large_runs import write_run, write_search
from support.web.shown_runs import HOSTILE, halving, population, search, train_run
from support.web.web_server import WebServer, web_server


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("storage")
    train_run(storage, "shaken", kills=[3], raises=[5])
    train_run(storage, "hung", hangs=[4], hang_timeout_s=5.0)
    train_run(storage, "hostile", says=f"{HOSTILE}\x1b[31m\x1b]0;owned\x07", raises=[2], retries=0, metric=HOSTILE)
    train_run(storage, HOSTILE.replace("/", "_"), epochs=2)
    search(storage, "search")
    write_search(storage / "many-trials", 10_000)
    population(storage, "copies")
    halving(storage, "halved")
    write_run(storage / "many-reports", 1_000_000)
    shutil.copytree(storage / "shaken", storage / "damaged")
    (storage / "damaged" / "run.json").write_text("{")
    return storage


@pytest.fixture(scope="session")
def server(storage: Path) -> Iterator[WebServer]:
    with web_server(storage) as server:
        yield server


@pytest.fixture
def tab() -> Iterator[Tab]:
    with browser_tab() as tab:
        yield tab
        assert tab.errors == []
