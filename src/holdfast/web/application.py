"""The pages of ``holdfast ui`` and their data, as a Starlette application. Reads through ``runs/``, in threads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from holdfast.driver import stop_requests
from holdfast.driver.stop_requests import StopRequest
from holdfast.errors import HoldfastError, NotARunError, StorageUnavailableError
from holdfast.pictures import picture_styles
from holdfast.runs.discovery import READ_PATIENCE_S
from holdfast.runs.stored_experiment import StoredExperiment
from holdfast.runs.stored_run import StoredRun
from holdfast.store.location import Location
from holdfast.web import log_view, wording
from holdfast.web.compare_view import COMPARED, compare_view, compared_json
from holdfast.web.curve_index import CurveIndex
from holdfast.web.guard import Guard, checks_form, form_token
from holdfast.web.live import LOOKS_EVERY_S, PageWatches
from holdfast.web.pages import Pages, plotly_script
from holdfast.web.recent import Recent
from holdfast.web.run_list import RunList
from holdfast.web.run_rows import RunRow, count_states, driver_text
from holdfast.web.run_view import RunView, curves_json, is_long, run_view
from holdfast.web.search_view import plots_json, trials_json
from holdfast.web.searches import Searches
from holdfast.web.storages import Storages, link
from holdfast.web.watched_run import WatchedRun

_INDEXES = 12  # the curves of as many runs are kept
_LIST_S = 0.15  # to read runs before the list is shown; the page's event stream reads all of them
_SLICE_S = 0.25  # to read reports in one request
_LATER_SLICE_S = 1.0  # the same, when the page already shows a sample
_FORM_BYTES = 10_000
_STATIC = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}  # addresses of static files contain a version


class Application:
    def __init__(self, locations: Sequence[Location], token: str) -> None:
        self.storages, self._token = Storages(locations), token
        self.watches = PageWatches()
        self._pages = Pages(form_token(token), [str(location) for location in locations])
        self._indexes: Recent[CurveIndex] = Recent(_INDEXES)
        self._searches = Searches()
        self._list = RunList(self.storages, self._searches)

    def asgi(self, host: str) -> Any:
        routes = [
            Route("/", self.home),
            Route("/run/{address:path}", self.run),
            Route("/experiment/{address:path}", self.search),
            Route("/compare", self.compare),
            Route("/data/curves/{address:path}", self.curves),
            Route("/data/trials/{address:path}", self.trials),
            Route("/data/experiment/{address:path}", self.search_plots),
            Route("/data/compare", self.compared_curves),
            Route("/data/log/{address:path}", self.log),
            Route("/data/stacks/{address:path}", self.stacks),
            Route("/events", self.events_of_all),
            Route("/events/{address:path}", self.events),
            Route("/stop/{address:path}", self.stop, methods=["POST"]),
            Route("/verify/{address:path}", self.verify, methods=["POST"]),
            Route("/static/{name}", self.static),
        ]
        handlers: dict[Any, Any] = {
            HoldfastError: self._trouble,
            OSError: self._trouble,
            404: lambda request, _: self._pages.error(request, 404, "This page does not exist."),
        }
        app = Starlette(routes=routes, exception_handlers=handlers)
        return Guard(app, token=self._token, host=host, refuse=self._pages.error)

    # Pages

    async def home(self, request: Request) -> Response:
        rows = await run_in_threadpool(self._list.rows, _LIST_S)
        return self._pages.render("runs.html", rows=rows, states=count_states(rows), version_shown=_version_of(rows))

    async def run(self, request: Request) -> Response:
        address = request.path_params["address"]

        watched = self.watches.watched(address) if "whole" in request.query_params else None

        def look() -> tuple[StoredRun, RunView | None]:
            stored = self.storages.open(address)
            if isinstance(watched, WatchedRun):
                return stored, watched.view()
            if isinstance(stored, StoredExperiment) or ("whole" not in request.query_params and is_long(stored)):
                return stored, None
            return stored, run_view(stored)

        stored, view = await run_in_threadpool(look)
        if isinstance(stored, StoredExperiment):
            return RedirectResponse(link("experiment", address))
        name, path = stored.location.name, str(stored.location)
        return self._pages.render("run.html", view=view, address=address, name=name, path=path)

    async def search(self, request: Request) -> Response:
        address = request.path_params["address"]

        def look() -> Any:
            stored = self._experiment(address)
            found = self._searches.glance(stored, reads=False)
            return stored, found, [*stored.run_file_damage(), *(found.damage if found else ())]

        stored, found, damage = await run_in_threadpool(look)
        return self._pages.render(
            "search.html",
            address=address,
            name=stored.location.name,
            path=str(stored.location),
            found=found,
            driver=driver_text(found.driver) if found else "",
            damage=damage,
        )

    async def compare(self, request: Request) -> Response:
        addresses = request.query_params.getlist("run")[:COMPARED]
        if len(addresses) < 2:
            return self._pages.error(request, 400, "Select at least two runs or trials to compare.")
        view = await run_in_threadpool(lambda: compare_view([(a, self.storages.open(a)) for a in addresses]))
        return self._pages.render("compare.html", view=view, addresses=addresses)

    def _experiment(self, address: str) -> StoredExperiment:
        stored = self.storages.open(address)
        if not isinstance(stored, StoredExperiment):
            raise NotARunError(f"{stored.location} is a run, not an experiment.")
        return stored

    def _index(self, address: str, stored: StoredRun) -> CurveIndex:
        return self._indexes.use(address, stored.run_id(), lambda: CurveIndex(stored))

    def _trouble(self, request: Request, error: Exception) -> Response:
        codes = ((NotARunError, 404), (StorageUnavailableError, 503))
        code = next((code for kind, code in codes if isinstance(error, kind)), 500)
        return self._pages.error(request, code, str(error))

    # Data

    async def curves(self, request: Request) -> Response:
        address = request.path_params["address"]
        slice_s = _LATER_SLICE_S if "more" in request.query_params else _SLICE_S

        def look() -> dict[str, Any]:
            stored = self.storages.open(address)
            found = stored.read(with_driver=False, with_manifests=False)
            return curves_json(found, self._index(address, stored), slice_s)

        return _json(await run_in_threadpool(look))

    async def trials(self, request: Request) -> Response:
        query = dict(request.query_params)

        def look() -> dict[str, Any]:
            return trials_json(self._searches.look(self._experiment(request.path_params["address"])), query)

        return _json(await run_in_threadpool(look))

    async def search_plots(self, request: Request) -> Response:
        def look() -> dict[str, Any]:
            return plots_json(self._searches.look(self._experiment(request.path_params["address"])))

        return _json(await run_in_threadpool(look))

    async def compared_curves(self, request: Request) -> Response:
        addresses = request.query_params.getlist("run")[:COMPARED]

        def look() -> dict[str, Any]:
            runs = [(address, self.storages.open(address)) for address in addresses]
            return compared_json([(run, self._index(address, run)) for address, run in runs], _SLICE_S)

        return _json(await run_in_threadpool(look))

    async def log(self, request: Request) -> Response:
        query = request.query_params
        try:
            attempt, rank, start = (int(query.get(name, "0")) for name in ("attempt", "rank", "from"))
        except ValueError:
            return self._pages.error(request, 400, "attempt, rank and from must be numbers.")

        def look() -> dict[str, Any]:
            stored = self.storages.open(request.path_params["address"])
            if query.get("q"):
                return log_view.log_matches(stored, attempt, rank, query["q"])
            if "from" in query:
                return log_view.log_since(stored, attempt, rank, max(0, start))
            return log_view.log_end(stored, attempt, rank)

        return _json(await run_in_threadpool(look))

    async def stacks(self, request: Request) -> Response:
        attempt = request.query_params.get("attempt", "0")
        if not attempt.isdecimal():
            return self._pages.error(request, 400, "attempt must be a number.")
        stored = await run_in_threadpool(self.storages.open, request.path_params["address"])
        found = await run_in_threadpool(stored.stacks, int(attempt))
        return _json({"columns": log_view.stack_columns(found)})

    async def events(self, request: Request) -> Response:
        address = request.path_params["address"]
        stored = await run_in_threadpool(self.storages.open, address)
        watched = None if isinstance(stored, StoredExperiment) else WatchedRun(stored)
        return self._stream(address, lambda: self._glance(stored, watched), [stored.location], watched)

    async def events_of_all(self, request: Request) -> Response:
        return self._stream("", self._glance_at_all, self.storages.locations)

    def _glance_at_all(self) -> dict[str, Any]:
        return {"version": _version_of(self._list.rows())}

    def _glance(self, stored: StoredRun, watched: WatchedRun | None) -> dict[str, Any]:
        if watched is not None:
            return {"version": watched.glance()}
        stored.look_again()
        assert isinstance(stored, StoredExperiment)
        return {"version": self._searches.look(stored).stamp}

    def _stream(self, address: str, look: Any, locations: Iterable[Location], watched: Any = None) -> Response:
        every_s = max((location.pause_s(*LOOKS_EVERY_S) for location in locations), default=LOOKS_EVERY_S[0])
        return StreamingResponse(self.watches.stream(address, look, every_s, watched), media_type="text/event-stream")

    # Actions

    async def stop(self, request: Request) -> Response:
        address = request.path_params["address"]
        form = await _form(request)
        if not checks_form(self._token, form.get("token")):
            return self._pages.error(request, 403, "This page comes from an earlier server. Reload it and try again.")
        stored = await run_in_threadpool(self.storages.open, address)
        await run_in_threadpool(_ask_to_stop, stored, form.get("now") == "1")
        return RedirectResponse(link("experiment" if isinstance(stored, StoredExperiment) else "run", address), 303)

    async def verify(self, request: Request) -> Response:
        form = await _form(request)
        if not checks_form(self._token, form.get("token")):
            return self._pages.error(request, 403, "This page comes from an earlier server. Reload it and try again.")
        stored = await run_in_threadpool(self.storages.open, request.path_params["address"])
        return _json(await run_in_threadpool(_verify, stored, str(form.get("id"))))

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name == "plotly.min.js":
            return Response(await run_in_threadpool(plotly_script), media_type="text/javascript", headers=_FOREVER)
        path = _STATIC / name
        if path.suffix not in _TYPES or path.parent != _STATIC or not path.is_file():
            return self._pages.error(request, 404, "The file does not exist.")
        content = path.read_bytes()
        if name == "holdfast.css":
            content = picture_styles().encode() + content
        return Response(content, media_type=_TYPES[path.suffix], headers=_FOREVER)


def _version_of(rows: Sequence[RunRow]) -> str:
    """Changes when there is something new to show."""
    return " ".join(f"{row.address}:{row.state}:{row.reports}:{row.failures}:{len(row.trouble)}" for row in rows)


def _ask_to_stop(stored: StoredRun, at_once: bool) -> None:
    driver = stored.driver()
    if driver is None:
        return
    if driver.pid is None or driver.host is None or driver.since is None:
        raise HoldfastError(
            f"The lease of {stored.location} does not name its driver. Stop the run on the machine where it runs."
        )
    objects = stored.location.open(READ_PATIENCE_S)
    try:
        stop_requests.leave(objects, StopRequest(driver.host, driver.pid, driver.since, at_once))
    finally:
        objects.close()


def _verify(stored: StoredRun, id: str) -> dict[str, Any]:
    manifests, _ = stored.manifests()
    if id not in {manifest.id for manifest in manifests}:
        return {"ok": False, "text": "This run has no such checkpoint."}
    try:
        stored.verify(id)
    except StorageUnavailableError:
        raise
    except HoldfastError as error:
        return {"ok": False, "text": wording.lines(str(error))}
    return {"ok": True, "text": "Every file matches its checksum."}


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form. Our forms are short."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _FORM_BYTES:
            return {}
    return dict(parse_qsl(body.decode(errors="replace")))


def _json(thing: Any) -> Response:
    return Response(json.dumps(wording.plain_json(thing), allow_nan=False), media_type="application/json")
