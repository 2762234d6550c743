"""``holdfast ui`` in a real browser: every page, in every state that a run can be in. Runs with make browser."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.faults.live_training import trained
from support.object_stores.fixtures import obstore_is_running  # noqa: F401
from support.object_stores.servers import s3_server
from support.web.browsing import Tab, browser_tab, looks_dark_and_fits
from support.web.large_runs import write_run
from support.web.notebooks import notebook_page
from support.web.web_server import PATIENCE_S, WebServer, web_server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]  # the first test trains what all look at
SCRIPT = Path(__file__).parents[2] / "support" / "web" / "shown_runs.py"
DRAWN = "document.querySelectorAll('.js-plotly-plot .trace').length"


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
            "search": "/experiment/0/search",
            "compare": "/compare?run=0/shaken&run=0/hostile",
            "hung": "/run/0/hung",
            "damaged": "/run/0/damaged",
            "many-trials": "/experiment/0/many-trials",
            "halved": "/experiment/0/halved",
            "copies": "/experiment/0/copies",
        }.items():
            tab.page.goto(f"{server.origin}{path}")
            tab.awaits("document.readyState === 'complete'")
            if name != "list":
                tab.awaits(f"{DRAWN} >= 2")
            looks_dark_and_fits(tab, f"{name}-dark-{width}")
        assert tab.errors == []
        tab.page.goto(f"{server.origin}/run/0/nowhere")
        assert "Not found" in tab.text()
        looks_dark_and_fits(tab, f"error-dark-{width}")


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
        command = [sys.executable, "-m", "holdfast", "report", str(storage / name), "--html", str(file)]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
        tab.page.goto(file.as_uri())
        tab.awaits(f"{DRAWN} >= {drawn}")
        assert tab.page.title() != "owned"
        assert tab.page.locator("img[src=x]").count() == 0
        tab.keeps_picture(f"report-{name}")
        if name in ("shaken", "search"):
            with tab.beside(dark=True, width=390) as phone:
                phone.page.goto(file.as_uri())
                phone.awaits(f"{DRAWN} >= {drawn}")
                looks_dark_and_fits(phone, f"report-{name}-dark-390")
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
    tab.page.set_viewport_size({"width": 390, "height": 900})
    tab.keeps_picture("notebook-390")
    ours = "[...document.querySelectorAll('.holdfast-result, .holdfast-result .facts span, progress, svg')]"
    assert tab.page.evaluate(f"Math.max(...{ours}.map((one) => one.getBoundingClientRect().right))") <= 390


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
            tab.awaits("document.getElementById('log-attempt').value === '2'")  # who follows a log sees the next one's
            tab.awaits("document.getElementById('log').textContent.includes('epoch')")
            tab.keeps_picture("living")
            tab.page.locator("button.danger").click()
            tab.page.locator(".badge.stopped").wait_for()
            job.wait(PATIENCE_S)
        finally:
            job.kill()


def test_a_living_search_is_followed_and_stopped(tab: Tab, tmp_path: Path) -> None:
    config = json.dumps({"is_search": True, "pause_s": 0.05})
    with web_server(tmp_path) as server, subprocess.Popen([sys.executable, SCRIPT, tmp_path, "alive", config]) as job:
        try:
            tab.page.goto(server.url)
            tab.page.locator("a", has_text="alive").click()  # it appears by itself
            tab.awaits("document.querySelectorAll('#rows tbody tr').length === 3")
            tab.page.locator("#rows .badge.terminated").wait_for()  # the first has ended, the others run
            assert tab.page.locator("#rows .badge.running").count() == 2
            assert "of 3 done" in tab.text("#summary")
            best = float(tab.text(".tile:nth-of-type(2) b"))
            tab.awaits(f"Number(document.querySelector('.tile:nth-of-type(2) b').textContent) < {best}")
            tab.awaits("plotlyLoaded && document.querySelectorAll('#best-plot .trace').length === 1")
            tab.keeps_picture("living-search")
            with tab.beside(dark=True, width=390) as phone:
                phone.page.goto(server.url)
                phone.page.goto(f"{server.origin}/experiment/0/alive")
                phone.awaits(f"{DRAWN} >= 2")
                looks_dark_and_fits(phone, "living-search-dark-390")
                assert phone.errors == []
            tab.page.locator("button.danger").click()
            tab.page.locator("#state .badge.interrupted, #state .badge.stopped, #state .badge.finished").wait_for()
            job.wait(PATIENCE_S)
        finally:
            job.kill()


def test_a_live_recovery_has_marks_of_its_own(tmp_path: Path) -> None:
    kills = [(1, 7, "forward")]
    trained(tmp_path, 2, kills, standby_workers=1)
    with web_server(tmp_path) as server, browser_tab() as tab:
        tab.page.goto(server.url)
        tab.page.locator("a", has_text="run").first.click()
        tab.awaits(f"{DRAWN} >= 2")
        assert tab.page.locator(".timeline .tl-bar.attempt").count() == 1  # the others kept their processes
        mark = tab.page.locator(".timeline .tl-mark.recovered")
        assert mark.all_inner_texts() == ["▲"]
        assert "rank 1 replaced by a standby worker; all ranks continue" in str(mark.get_attribute("title"))
        mark.focus()
        tab.page.locator(".tl-told", has_text="no step is repeated").wait_for()
        assert "a standby worker took a rank" in tab.text(".tl-legend")
        assert "a standby worker took the rank" in tab.text("#failures")
        tab.page.locator("details.events summary").click()
        assert "standby worker 1 of attempt 1 is ready" in tab.text("details.events")
        rows = "[...document.querySelectorAll('.events tr')]"
        assert tab.page.evaluate(f"new Set({rows}.map((row) => row.cells[1].offsetLeft)).size") == 1
        tab.keeps_picture("live-recovery")
        with tab.beside(dark=True, width=390) as phone:
            phone.page.goto(server.url)
            phone.page.goto(f"{server.origin}/run/0/run")
            phone.awaits(f"{DRAWN} >= 2")
            looks_dark_and_fits(phone, "live-recovery-dark-390")
            assert phone.errors == []
        assert tab.errors == []


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


def test_ten_thousand_trials(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/experiment/0/many-trials")
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
    tab.page.goto(f"{server.origin}/experiment/0/copies")
    tab.awaits("document.querySelectorAll('#exploit-tree li li').length >= 2")
    assert "lr" in tab.text("#exploit-tree")
    tab.keeps_picture("exploits")


def test_what_the_scheduler_stopped_and_why(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/experiment/0/halved")
    tab.awaits("document.querySelectorAll('#stop-rows tbody tr').length >= 1")
    assert "not among the best" in tab.text("#stop-rows")
    assert tab.page.locator("#rows .badge.cut").count() >= 1
    tab.keeps_picture("halved")
    tab.awaits("document.querySelector('#learning-plot').dataset.opens")
    tab.page.evaluate("document.getElementById('learning-plot').emit('plotly_click', { points: [{ curveNumber: 0 }] })")
    tab.page.wait_for_url("**/run/0/halved/*")


def test_a_million_reports(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/run/0/many-reports")
    tab.awaits(f"{DRAWN} >= 3")
    tab.awaits("curves.data.share === 1", within_s=400)  # seconds of CPU time, on a busy machine
    steps = tab.page.evaluate("curves.data.metrics.find((one) => one.name === 'step').kept.flatMap((part) => part.y)")
    assert max(steps) == 1_000_000
    assert "100 %" in tab.text("#summary")  # the goodput, before the reports have been read
    assert len(steps) < 10_000


def test_a_run_with_a_long_journal_is_painted_before_it_is_read(tab: Tab, tmp_path: Path) -> None:
    write_run(tmp_path / "long", 9_000, attempts=3, commits=3_000, log_lines=30)
    with web_server(tmp_path) as server:
        shell = server.get("/run/0/long").text
        assert "Reading the journal" in shell
        assert "Finished in" not in shell
        assert "Finished in" in server.get("/run/0/long?whole=1").text
        tab.page.goto(server.url)
        tab.page.goto(f"{server.origin}/run/0/long")
        tab.page.locator(".health", has_text="Finished in").wait_for()
        assert tab.page.locator(".timeline .tl-bar.attempt").count() == 3
        assert tab.page.locator("[data-verify]").count() == 3
        tab.awaits("document.getElementById('log').textContent.includes('step 29')")
        assert tab.page.input_value("#log-attempt") == "3"
        tab.awaits(f"{DRAWN} >= 3")
        tab.keeps_picture("long-journal")
