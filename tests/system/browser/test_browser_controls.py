"""What a person does with the pages: keys, buttons, sorting, selecting, choosing a log, and leaving a tab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from support.object_stores.fixtures import obstore_is_running  # noqa: F401
from support.web.browsing import Tab
from support.web.large_runs import write_run
from support.web.web_server import WebServer, web_server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]  # the first test trains what all look at
DRAWN = "document.querySelectorAll('.js-plotly-plot .trace').length"


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


def _names(tab: Tab) -> list[str]:
    return [text.split("\n")[0] for text in tab.page.locator("#rows tbody tr:visible td.name").all_inner_texts()]


def test_every_column_of_the_list_is_sorted(tab: Tab, tmp_path: Path) -> None:
    write_run(tmp_path / "short", 50, attempts=1)
    write_run(tmp_path / "long", 2_000, attempts=1)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    with web_server(tmp_path) as server:
        tab.page.goto(server.url)
        tab.awaits("document.querySelectorAll('#rows tbody tr').length === 3")
        tab.awaits("!document.querySelector('#rows .badge.reading')")
        heads = tab.page.locator("#rows th[data-sort]")
        assert heads.count() == tab.page.locator("#rows th").count() - 1  # that of the boxes has nothing to sort
        tab.page.locator("th[data-sort=metrics]").click()
        assert _names(tab) == ["short", "long", "broken"]  # by the step, as a number; unknown values come last
        tab.page.locator("th[data-sort=metrics]").press("Enter")
        assert _names(tab) == ["long", "short", "broken"]
        assert tab.page.locator("th[data-sort=metrics]").get_attribute("aria-sort") == "descending"


def test_rows_are_selected_by_keys_and_compared(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.awaits("document.querySelectorAll('#rows tbody tr').length >= 7")
    tab.awaits("!document.querySelector('#rows .badge.reading')")
    tab.page.fill("#filter", "epochs")
    tab.page.keyboard.press("Escape")
    assert tab.page.locator("#compare").is_disabled()
    for key in "jjkxjx":  # the first and the second row
        tab.page.keyboard.press(key)
    assert tab.text("#compare") == "Compare 2"
    chosen = [tab.page.locator("#rows tbody tr:visible").nth(row).get_attribute("data-address") for row in (0, 1)]
    tab.page.click("#compare")
    tab.page.wait_for_url("**/compare?*")
    assert [quote(str(address), safe="") in tab.page.url for address in chosen] == [True, True]
    tab.awaits(f"{DRAWN} >= 2")
    assert tab.page.locator("svg.swatch").count() >= 4
    tab.page.keyboard.press("g")
    tab.page.wait_for_url(f"{server.origin}/")


def test_trials_are_selected_and_compared(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/experiment/0/search")
    tab.awaits("document.querySelectorAll('#rows tbody tr').length === 9")
    for row in (0, 1):
        tab.page.locator("#rows input[name=pick]").nth(row).check()
    tab.page.click("#compare")
    tab.page.wait_for_url("**/compare?*")
    tab.awaits(f"{DRAWN} >= 2")
    assert "lr" in tab.text() or "width" in tab.text()


def test_colours_and_help_by_key_and_by_button(tab: Tab, server: WebServer) -> None:
    page = tab.page
    page.goto(server.url)
    lightness = "parseInt(getComputedStyle(document.documentElement).backgroundColor.slice(4))"
    presses: list[Callable[[], None]] = [lambda: page.keyboard.press("t"), lambda: page.click("#theme-button")]
    for press in presses:
        found = []
        for _ in range(3):
            press()
            found.append(
                (page.evaluate("document.documentElement.dataset.theme ?? ''"), page.evaluate(lightness) > 128)
            )
        assert found == [("light", True), ("dark", False), ("", True)]
    page.keyboard.press("t")
    page.keyboard.press("t")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"  # it is remembered
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    tab.keeps_picture("help")
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()


def test_marks_of_the_timeline_are_reached_by_keys(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/run/0/shaken")
    lane = tab.page.locator(".tl-lane.tall")
    lane.locator("[tabindex='0']").focus()
    assert "attempt 1: 2 workers" in tab.text(".tl-told")
    tab.page.keyboard.press("ArrowRight")
    assert "attempt 2: 2 workers" in tab.text(".tl-told")
    tab.page.keyboard.press("End")
    assert "attempt 3" in tab.text(".tl-told")
    tab.page.keyboard.press("Tab")  # to the next lane, however many marks this one has
    assert tab.page.evaluate("document.activeElement.className") == "tl-mark failure"
    assert "was killed by SIGKILL" in tab.text(".tl-told")
    tab.page.keyboard.press("Enter")
    assert tab.page.url.endswith("#failure-1")


def test_the_log_of_every_rank_can_be_chosen(tab: Tab, server: WebServer) -> None:
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/run/0/shaken")
    tab.awaits("document.getElementById('log').textContent.includes('epoch 7')")
    tab.page.fill("#log-attempt", "1")
    tab.page.fill("#log-rank", "1")
    tab.page.press("#log-rank", "Enter")
    tab.awaits("logs.rank === 1 && document.getElementById('log').textContent.includes('epoch 2')")
    assert "epoch 7" not in tab.text("#log")
    assert [tab.page.get_attribute(field, "max") for field in ("#log-attempt", "#log-rank")] == ["3", "1"]


def test_a_tab_that_is_hidden_keeps_no_connection(tab: Tab, tmp_path: Path) -> None:
    hide = "Object.defineProperty(document, 'hidden', {{ value: {}, configurable: true }})"
    changed = "document.dispatchEvent(new Event('visibilitychange'))"
    write_run(tmp_path / "first", 10)
    with web_server(tmp_path) as server:
        tab.page.goto(server.url)
        tab.awaits("source && source.readyState === 1 && !document.getElementById('live').hidden")
        tab.page.evaluate(f"() => {{ {hide.format('true')}; {changed}; }}")
        assert tab.page.evaluate("source") is None
        write_run(tmp_path / "second", 10)
        tab.page.evaluate(f"() => {{ {hide.format('false')}; {changed}; }}")
        tab.page.locator("a", has_text="second").wait_for()
        assert tab.page.evaluate("source.readyState") == 1


def test_a_sample_of_the_curves_is_drawn_before_the_rest_is_read(tab: Tab, server: WebServer) -> None:
    asked: list[Any] = []
    tab.page.route("**/data/curves/**", lambda route: asked.append(route))  # a wrapper, which playwright marks
    tab.page.add_init_script("performance.now = () => 1000")  # on a quick machine
    tab.page.goto(server.url)
    with tab.page.expect_request("**/data/curves/**"):
        tab.page.goto(f"{server.origin}/run/0/shaken")
    tab.awaits("window.Plotly")
    sample = {**server.get("/data/curves/0/shaken").json(), "share": 0.5}
    asked[0].fulfill(json=sample)  # the next request gets no answer
    tab.awaits(f"{DRAWN} >= 3")
    assert "50 %" in tab.text("#curve-note")
    tab.page.unroute_all(behavior="ignoreErrors")


def test_what_failed_while_the_server_was_unreachable_is_asked_again(tab: Tab, server: WebServer) -> None:
    tab.page.route("**/data/trials/**", lambda route: route.abort())
    tab.page.goto(server.url)
    tab.page.goto(f"{server.origin}/experiment/0/search")
    tab.awaits("document.getElementById('trial-count').textContent === 'Failed to fetch'")
    tab.awaits("source && source.readyState === 1 && !document.getElementById('live').hidden")
    assert tab.page.locator("#rows tbody tr").count() == 0
    tab.page.unroute("**/data/trials/**")
    tab.page.evaluate("source.dispatchEvent(new Event('error'))")
    assert tab.text("#live") == "disconnected"
    tab.page.evaluate("source.dispatchEvent(new MessageEvent('changed', { data: JSON.stringify({ version: known }) }))")
    tab.awaits("document.querySelectorAll('#rows tbody tr').length === 9")
    assert tab.text("#live") == "live"
    assert all("ERR_FAILED" in error for error in tab.errors)
    tab.errors.clear()
