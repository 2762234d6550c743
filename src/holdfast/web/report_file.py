"""The page of a run as one HTML file: styles, scripts, plotly and data are inside, and it asks for nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from holdfast.pictures import picture_styles
from holdfast.runs.stored_run import StoredRun
from holdfast.web import wording
from holdfast.web.curve_index import CurveIndex
from holdfast.web.pages import environment
from holdfast.web.run_view import curves_json, run_view

_STATIC = Path(__file__).parent / "static"
_WHOLE_S = 3600.0  # to read the reports


def run_report(stored: StoredRun) -> str:
    from plotly.offline import get_plotlyjs

    found, index = stored.read(), CurveIndex(stored)
    index.advance(found.past.attempts, _WHOLE_S)
    curves = curves_json(found, index, _WHOLE_S)
    page: str = (
        environment()
        .get_template("report.html")
        .render(
            view=run_view(stored, index, found),
            styles=Markup(picture_styles() + (_STATIC / "holdfast.css").read_text()),
            plotly=Markup(get_plotlyjs()),
            plots=Markup((_STATIC / "plots.js").read_text()),
            curves=Markup(_script_json(curves)),
        )
    )
    return page


def _script_json(thing: Any) -> str:
    """JSON that no HTML parser takes for the end of its element."""
    text = json.dumps(wording.plain_json(thing), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
