"""The page of a run or experiment as one HTML file, with styles, scripts, plotly and data. It makes no requests."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from markupsafe import Markup

import holdfast
from holdfast.pictures import picture_styles
from holdfast.runs.stored_experiment import StoredExperiment
from holdfast.runs.stored_run import StoredRun
from holdfast.web import wording
from holdfast.web.curve_index import CurveIndex
from holdfast.web.log_view import stack_columns
from holdfast.web.pages import environment, plotly_script
from holdfast.web.run_rows import driver_text
from holdfast.web.run_view import curves_json, run_view
from holdfast.web.search_index import SearchIndex
from holdfast.web.search_view import all_trials_json, plots_json

_STATIC = Path(__file__).parent / "static"
_WHOLE_S = 3600.0  # to read the reports


def report_page(stored: StoredRun) -> str:
    return _search_report(stored) if isinstance(stored, StoredExperiment) else _run_report(stored)


def _run_report(stored: StoredRun) -> str:
    found, index = stored.read(), CurveIndex(stored)
    view = run_view(stored, found)
    stacks = [(attempt, rank, stack_columns(stored.stacks(attempt))) for attempt, rank in view.hangs]
    curves = curves_json(found, index, _WHOLE_S)
    return _page("report.html", curves, ["plots.js", "report_run.js"], view=view, stacks=stacks)


def _search_report(stored: StoredExperiment) -> str:
    found = SearchIndex(stored).look()
    trials = all_trials_json(found)
    return _page(
        "search_report.html",
        {"trials": trials, "plots": plots_json(found)},
        ["plots.js", "report_search.js", "parallel.js", "search.js"],
        found=found,
        name=stored.location.name,
        path=str(stored.location),
        damage=[*stored.run_file_damage(), *found.damage],
        driver=driver_text(found.driver),
        left_out=trials["left_out"],
    )


def _page(template: str, data: dict[str, Any], scripts: list[str], **values: Any) -> str:
    templates = environment()
    templates.filters["ago"] = wording.moment  # the file may be opened at any later time
    page: str = templates.get_template(template).render(
        styles=Markup(picture_styles() + (_STATIC / "holdfast.css").read_text()),
        plotly=Markup(plotly_script().decode()),
        scripts=[Markup((_STATIC / name).read_text()) for name in scripts],
        data=Markup(_script_json(data)),
        release=holdfast.__version__,
        written=time.time(),
        **values,
    )
    return page


def _script_json(thing: Any) -> str:
    """JSON in which no HTML parser finds the end of the element."""
    text = json.dumps(wording.plain_json(thing), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
