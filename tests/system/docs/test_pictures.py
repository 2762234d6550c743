"""The charts have the figures of docs/benchmarks.md, so has the README, and no picture fetches or runs anything."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from support.repository import ROOT

DRAWING, PICTURES = ROOT / "docs" / "drawing", ROOT / "docs" / "pictures"
PAGE = (ROOT / "docs" / "benchmarks.md").read_text()


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DRAWING / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


charts = load("bar_charts")
terminal = load("terminal_svg")


@pytest.mark.parametrize("name", charts.CHARTS)
def test_a_chart_has_the_figures_of_the_page(name: str) -> None:
    drawn = charts.draw(PAGE, charts.CHARTS[name])
    assert (PICTURES / f"{name}.svg").read_text() == drawn, "run: python docs/drawing/bar_charts.py"


@pytest.mark.parametrize("name", ["headline"])
def test_the_readme_has_them_too(name: str) -> None:
    readme = (ROOT / "README.md").read_text()
    for panel in charts.CHARTS[name]:
        for written in charts.figures(PAGE, panel).values():
            figure = charts.short(written[1]).removesuffix(" / s")
            assert re.search(rf"[|] {re.escape(figure)} [|]|: {re.escape(figure)}\)", readme), (panel.title, figure)


def test_a_page_without_the_table_is_a_clear_error() -> None:
    with pytest.raises(SystemExit, match=r"no table of recovery. Run: make benchmark"):
        charts.draw("nothing", charts.CHARTS["headline"])
    with pytest.raises(SystemExit, match=r"no row 'Holdfast' or no column 'kill to first step'"):
        charts.draw(PAGE.replace("kill to first step", "renamed"), charts.CHARTS["headline"])


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_is_small_and_fetches_nothing(picture: Path) -> None:
    text = picture.read_text()
    root = ElementTree.fromstring(text)
    assert len(text) < 150_000
    assert {element.tag.partition("}")[2] for element in root.iter()}.isdisjoint({"script", "image", "foreignObject"})
    assert "href" not in text
    assert "url(" not in text


def test_the_recording_has_a_kill_and_what_came_of_it() -> None:
    text = (PICTURES / "kill.svg").read_text()
    for words in ("kill -9", "SIGKILL", "finished"):
        assert words in text


def test_a_line_that_stays_is_drawn_once_and_keeps_its_colour() -> None:
    frames = [
        terminal.Frame(0.0, ("\x1b[32mgreen", "still green\x1b[0m", "one", "", "end")),
        terminal.Frame(1.0, ("\x1b[32mgreen", "still green\x1b[0m", "two <&>", "", "end")),
    ]
    drawn = terminal.draw(frames, 20, "a title")
    assert drawn.count(">green<") == drawn.count(">still green<") == 1
    assert drawn.count(f'fill="{terminal.COLOURS[32]}"') == 2
    assert "two &lt;&amp;&gt;" in drawn
    assert drawn.count(">end<") == 1
    names = {element.get("class") for element in ElementTree.fromstring(drawn).iter() if element.get("class")}
    assert names == {"t0 x", "t1"}  # "one" goes, "two" stays; the others are always there


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.png")), ids=lambda path: path.stem)
def test_a_screenshot_is_small_and_shown(picture: Path) -> None:
    assert picture.stat().st_size < 150_000
    assert f"pictures/{picture.name}" in (ROOT / "docs" / "ui.md").read_text()
