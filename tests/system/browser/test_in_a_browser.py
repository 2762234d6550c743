"""``holdfast ui`` in a real browser: every page, in every state that a run can be in. Runs with make browser."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from support.object_stores.fixtures import obstore_is_running  # noqa: F401
from support.object_stores.servers import s3_server
from support.web.browsing import Tab, browser_tab
from support.web.large_runs import write_run, write_search
from support.web.notebooks import notebook_page
from support.web.shown_runs import HOSTILE, search, train_run
from support.web.web_server import PATIENCE_S, WebServer, web_server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]  # the first test trains what all look at
SCRIPT = Path(__file__).parents[2] / "support" / "web" / "shown_runs.py"
DRAWN = "document.querySelectorAll('.js-plotly-plot .trace').length"


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("storage")
    train_run(storage, "shaken", kills=[3], raises=[5])
    train_run(storage, "hung", hangs=[4], hang_timeout_s=5.0)
    train_run(storage, "hostile", says=f"{HOSTILE}\x1b[31m\x1b]0;owned\x07", raises=[2], retries=0, metric=HOSTILE)
    train_run(storage, HOSTILE.replace("/", "_"), epochs=2)
    search(storage, "search")
    write_search(storage / "many-trials", 10_000)
    write_search(storage / "copies", 12, exploits=True)
    write_run(storage / "many-reports", 1_000_000)
    shutil.copytree(storage / "shaken", storage / "damaged")
    (storage / "damaged" / "run.json").write_text("{")
    return storage


@pytest.fixture(scope="module")
def server(storage: Path) -> Iterator[WebServer]:
    with web_server(storage) as server:
        yield server


@pytest.fixture
def tab() -> Iterator[Tab]:
    with browser_tab() as tab:
        yield tab
        assert tab.errors == []


def test_the_list_is_filtered_sorted_and_walked_by_keyboard(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    assert "token" not in tab.page.url
    tab.awaits("document.querySelectorAll('#rows tbody tr').length >= 7")
    tab.keeps_picture("list")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("shaken")
    assert tab.page.locator("#rows tbody tr:visible").count() == 1
    tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**/run/0/shaken")


def test_a_run_page_shows_timeline_curves_failures_logs_and_verifies(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/run/0/shaken")
    tab.awaits(f"{DRAWN} >= 3")
    assert tab.page.locator(".timeline .tl-bar.attempt").count() == 3
    tab.page.locator(".tl-mark.failure").first.click()
    assert tab.page.url.endswith("#failure-1")
    tab.awaits("document.getElementById('log').textContent.includes('epoch 7')")
    tab.page.fill("#log-search", "EPOCH 6")
    tab.page.press("#log-search", "Enter")
    tab.awaits("document.querySelectorAll('#log mark').length === 1")
    tab.page.locator("[data-verify]").first.click()
    tab.page.get_by_text("✓ intact").wait_for()
    tab.keeps_picture("run")


@pytest.mark.parametrize("width", [1300, 390])
def test_every_page_in_the_dark_and_on_a_phone(server: WebServer, width: int) -> None:
    with browser_tab(dark=True, width=width) as tab:
        tab.page.goto(server.url)
        for name, path in {
            "list": "/",
            "run": "/run/0/shaken",
            "search": "/search/0/search",
            "compare": "/compare?run=0/shaken&run=0/hostile",
        }.items():
            tab.page.goto(f"{server.origin}{path}")
            tab.awaits("document.readyState === 'complete'")
            if name != "list":
                tab.awaits(f"{DRAWN} >= 2")
            tab.keeps_picture(f"{name}-dark-{width}")
            wide = tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name} scrolls sideways by {wide} px"
            dark = tab.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            assert max(map(int, dark.strip("rgb()").split(","))) < 60
        assert tab.errors == []


def test_stacks_of_a_hang_side_by_side(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/run/0/hung")
    tab.awaits("document.querySelectorAll('#stack-columns pre').length >= 2")
    columns = tab.page.locator("#stack-columns > div").all_inner_texts()
    assert [text for text in columns if "time.sleep" in text or "shown_runs.py" in text]
    assert "hang" in tab.text("#failures")
    tab.keeps_picture("hung")


def test_reports_open_without_network(tab: Tab, storage: Path, tmp_path: Path) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    for name, drawn in {"shaken": 3, "hostile": 3, "search": 5, "copies": 4}.items():
        file = tmp_path / f"{name}.html"
        command = [sys.executable, "-m", "holdfast", "report", storage / name, "--html", file]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
        tab.page.goto(file.as_uri())
        tab.awaits(f"{DRAWN} >= {drawn}")
        assert tab.page.title() != "owned"
        assert tab.page.locator("img[src=x]").count() == 0
        tab.keeps_picture(f"report-{name}")
        if name == "search":
            tab.page.locator("th[data-sort=value]").click()
            tab.awaits("document.querySelector('#rows tbody tr .tag')?.textContent === '★ best'")
            tab.page.fill("#filter", "planned failure")
            tab.awaits("document.querySelectorAll('#rows tbody tr').length === 3")
    assert all(url.startswith(("file:", "blob:", "data:")) for url in asked), asked


def test_a_notebook_shows_a_run_a_result_and_a_search(tab: Tab, tmp_path: Path) -> None:
    cells = [
        "import os",
        "from support.web.shown_runs import objective, search, train_run; from holdfast import train, tune",
        "train_run(os.getcwd(), 'noted', kills=[3], verbose=1)",
        "train.Result.from_path(os.path.abspath('noted'))",
        "search(os.getcwd(), 'searched', verbose=1)",
        "tune.Tuner.restore(os.path.abspath('searched'), objective).get_results()",
    ]
    page, outputs = notebook_page(cells, tmp_path)
    assert {kind for kinds in outputs for kind in kinds} == {"display_data", "execute_result"}  # no red text
    tab.page.goto(page.as_uri())
    text = tab.text()
    assert "8 of 8 epochs" in text
    assert "rank 1 was killed by SIGKILL" in text
    assert "9 trials: 6 done, 3 failed" in text
    assert tab.page.locator("polyline").count() >= 6
    assert tab.page.locator("progress").count() >= 3
    tab.keeps_picture("notebook")


def test_a_living_run_loses_a_worker_while_one_watches(tab: Tab, tmp_path: Path) -> None:
    config = json.dumps({"epochs": 10_000, "pause_s": 0.1})
    with web_server(tmp_path) as server, subprocess.Popen([sys.executable, SCRIPT, tmp_path, "living", config]) as job:
        try:
            tab.page.goto(server.url)
            tab.page.locator("a", has_text="living").click()  # it appears by itself
            tab.awaits(f"{DRAWN} >= 3")
            tab.awaits("document.querySelectorAll('.timeline .tl-mark.saved').length > 0")
            os.kill(_worker_of(tmp_path / "living"), signal.SIGKILL)
            tab.page.locator("#failures summary", has_text="was killed by SIGKILL").wait_for()
            tab.awaits("document.querySelectorAll('.timeline .tl-bar.attempt').length === 2")
            tab.awaits("document.querySelector('#curves .annotation-text') !== null")
            tab.keeps_picture("living")
            tab.page.locator("button.danger").click()
            tab.page.locator(".badge.stopped").wait_for()
            job.wait(PATIENCE_S)
        finally:
            job.kill()


def _worker_of(run: Path) -> int:
    """The process of rank 1, by what it printed."""
    log = run / "logs" / "attempt-0001" / "rank-1.log"
    return int(log.read_text().split()[1])


def test_a_dead_run_in_an_s3_server(tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
        url = f"s3://{s3.make_bucket()}/runs"
        config = json.dumps({"kills": [3]})
        subprocess.run([sys.executable, SCRIPT, url, "remote", config], check=True, timeout=PATIENCE_S)
        with web_server(url) as server:
            tab.page.goto(server.url)
            tab.page.locator("a", has_text="remote").click()
            tab.awaits(f"{DRAWN} >= 3")
            assert "was killed by SIGKILL" in tab.text("#failures")
            assert tab.page.locator(".badge.finished").count() == 1


def test_a_damaged_run_says_what_is_damaged(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/run/0/damaged")
    assert "Damaged files" in tab.text("#summary")
    assert "run.json" in tab.text("#summary")
    tab.awaits(f"{DRAWN} >= 3")


def test_an_empty_storage(tab: Tab, tmp_path: Path) -> None:
    with web_server(tmp_path) as server:
        tab.page.goto(server.url)
        assert "No runs yet" in tab.text()


def test_a_wrong_token_shows_nothing(server: WebServer) -> None:
    with browser_tab() as tab:
        tab.page.goto(f"{server.origin}/run/0/shaken?token=wrong")
        assert "needs a token" in tab.text()
        assert "SIGKILL" not in tab.text()


def test_ten_thousand_trials(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/search/0/many-trials")
    tab.awaits("document.querySelectorAll('#rows tbody tr').length === 20")
    tab.awaits(f"{DRAWN} >= 5")
    tab.page.locator("th[data-sort=value]").click()
    tab.awaits("document.querySelector('#rows tbody tr .tag')?.textContent === '★ best'")
    tab.page.select_option("#status", "ERROR")
    tab.awaits("document.getElementById('trial-count').textContent === '1 to 20 of 200'")
    tab.page.locator("#next").click()
    tab.awaits("document.getElementById('trial-count').textContent === '21 to 40 of 200'")
    tab.keeps_picture("many-trials")


def test_exploits_are_a_tree(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/search/0/copies")
    tab.awaits("document.querySelectorAll('#exploit-tree li li').length >= 2")
    assert "lr" in tab.text("#exploit-tree")
    tab.keeps_picture("exploits")


def test_a_million_reports(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/run/0/many-reports")
    tab.awaits(f"{DRAWN} >= 3")
    tab.awaits("curves.data.share === 1", within_s=400)  # seconds of CPU time, on a busy machine
    steps = tab.page.evaluate("curves.data.metrics.find((one) => one.name === 'step').kept.flatMap((part) => part.y)")
    assert max(steps) == 1_000_000
    assert len(steps) < 10_000


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
