"""What others have chosen, as names, errors and log lines, runs nothing; and without a token a page shows nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from support.object_stores.fixtures import obstore_is_running  # noqa: F401
from support.web.browsing import Tab, browser_tab
from support.web.large_runs import write_hostile_nodes, write_hostile_search
from support.web.shown_runs import HOSTILE
from support.web.web_server import PATIENCE_S, WebServer, web_server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]  # the first test trains what all look at
DRAWN = "document.querySelectorAll('.js-plotly-plot .trace').length"


def test_a_wrong_token_shows_nothing(server: WebServer) -> None:
    with browser_tab() as tab:
        tab.page.goto(f"{server.origin}/run/0/shaken?token=wrong")
        assert "needs a token" in tab.text()
        assert "SIGKILL" not in tab.text()


def test_a_hostile_run_runs_nothing(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.awaits("document.querySelectorAll('#rows tbody tr').length >= 7")
    name = quote(HOSTILE.replace("/", "_"))
    for path in ("/run/0/hostile", "/compare?run=0/hostile&run=0/shaken", f"/run/0/{name}"):
        tab.page.goto(f"{server.origin}{path}")
        tab.awaits(f"{DRAWN} >= 3")
        assert tab.page.title() != "owned"
        assert tab.page.locator("img[src=x]").count() == 0
        assert tab.page.evaluate("[...document.scripts].every((script) => script.src)")
        assert HOSTILE[:20] in tab.text()
    tab.page.goto(f"{server.origin}/run/0/hostile")
    tab.awaits("document.getElementById('log').textContent.includes('<script>')")
    assert "\x1b" not in tab.page.content()


def test_a_hostile_search_runs_nothing(tab: Tab, tmp_path: Path) -> None:
    """Names of parameters, trials, nodes and the storage, errors, and what a scheduler says."""
    text = f"{HOSTILE}\x1b[31m\x1b]0;owned\x07"
    storage = tmp_path / HOSTILE.replace("/", "_")
    write_hostile_search(storage / "search", text)
    write_hostile_nodes(storage / "nodes", text)
    with web_server(storage) as server:
        tab.page.goto(server.url)
        _is_only_text(tab, shows=2)
        tab.page.goto(f"{server.origin}/experiment/0/search")
        tab.awaits("document.querySelectorAll('#rows tbody tr').length === 6")
        tab.awaits(f"{DRAWN} >= 5")
        tab.awaits("document.querySelectorAll('#exploit-tree li').length >= 1")
        tab.awaits("document.querySelectorAll('#stop-rows tbody tr').length === 1")
        _is_only_text(tab, shows=20)
        tab.keeps_picture("hostile-search")
        tab.page.goto(f"{server.origin}/run/0/search/trial_4")
        _is_only_text(tab, shows=2)
        tab.page.goto(f"{server.origin}/compare?run=0/search/trial_0&run=0/search/trial_4")
        _is_only_text(tab, shows=1)
        tab.page.goto(f"{server.origin}/run/0/nodes")
        tab.page.locator(".tl-mark.failure").first.hover()
        _is_only_text(tab, shows=5)
        tab.keeps_picture("hostile-nodes")
        tab.page.goto("about:blank")  # before its server ends
    for name in ("search", "nodes"):
        file = tmp_path / f"{name}.html"
        command = [sys.executable, "-m", "holdfast", "report", str(storage / name), "--html", str(file)]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
        tab.page.goto(file.as_uri())
        _is_only_text(tab, shows=5)


def _is_only_text(tab: Tab, shows: int) -> None:
    """The page has the words at least that often, and nothing of them has run or became an element."""
    assert tab.page.title() != "owned"
    assert tab.page.locator("img[src=x]").count() == 0
    assert "\x1b" not in tab.page.content()
    found = tab.page.evaluate("document.documentElement.textContent.split('onerror=document').length - 1")
    assert found >= shows, f"{found} times in {tab.page.url}"
