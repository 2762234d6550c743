"""Renders templates as pages. Templates escape everything that they show. Only ``pictures`` makes HTML; it escapes
itself."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import holdfast
from holdfast.pictures import picture_styles
from holdfast.pictures.ledger_bar import ledger_bar, spelled
from holdfast.pictures.run_timeline import run_timeline
from holdfast.printable import printable, printable_lines
from holdfast.web import wording
from holdfast.web.storages import link

_STATIC = Path(__file__).parent / "static"


class Pages:
    def __init__(self, form_token: str, storages: Sequence[str]) -> None:
        self._env = environment()
        self._env.globals.update(form_token=form_token, storages=list(storages), version=_version(), link=link)
        for name in self._env.list_templates():  # compile them before the first request
            self._env.get_template(name)

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        text = self._env.get_template(template).render(**values)
        return Response(text, status, media_type="text/html")

    def error(self, request: Request, status: int, text: str) -> Response:
        text = printable_lines(text)
        if request.url.path.startswith(("/data/", "/events", "/verify/")):
            return JSONResponse({"error": text or "Open the link that holdfast ui printed."}, status)
        return self.render("error.html", status, code=status, text=text)


def environment() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.PackageLoader("holdfast.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "moment": wording.moment,
        "ago": wording.ago,
        "size": wording.size,
        "spelled": spelled,
        "plain": lambda text: printable(str(text)),
        "breakable": _breakable,
    }
    env.globals["timeline_picture"] = lambda history, pending: Markup(run_timeline(history, pending, ""))
    env.globals["ledger_picture"] = lambda ledger: Markup(ledger_bar(ledger))
    return env


def _breakable(name: str) -> Markup:
    """A long name, which the browser may break between its parts."""
    return Markup(str(escape(printable(name))).replace("_", "_<wbr>").replace("/", "/<wbr>"))


def plotly_script() -> bytes:
    """plotly.js from plotly's package, read without importing the package."""
    found = importlib.util.find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly")
    return Path(found.submodule_search_locations[0], "package_data", "plotly.min.js").read_bytes()


def _version() -> str:
    """Changes with our files and with plotly, so browsers may cache what they have loaded."""
    known = sha256(f"{holdfast.__version__} {importlib.metadata.version('plotly')}".encode())
    known.update(picture_styles().encode())
    for path in sorted(_STATIC.iterdir()):
        known.update(path.read_bytes())
    return known.hexdigest()[:12]
