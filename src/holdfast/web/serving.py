"""The server of ``holdfast ui``: on loopback unless told otherwise, until Ctrl+C."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

import anyio
import uvicorn

from holdfast.store.location import Location
from holdfast.web.application import Application
from holdfast.web.guard import is_loopback, new_token

DEFAULT_PORT = 8484


def serve(
    locations: Sequence[Location],
    host: str,
    port: int | None,
    announce: Callable[[str, str], None],
    token: str | None = None,
) -> None:
    """When the port is bound, ``announce`` gets the link with the token, and a warning or an empty text."""
    token = token or new_token()
    bound = _bind(host, port)
    with bound:
        number = bound.getsockname()[1]
        app = Application(locations, token).asgi(host)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # it would contain the token
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
        config.load()  # import now, so that the first request does not wait
        asyncio.run(anyio.sleep(0))
        name = "127.0.0.1" if host in ("0.0.0.0", "localhost") else "[::1]" if host == "::" else host
        shown = f"[{name}]" if ":" in name and not name.startswith("[") else name
        warning = (
            "" if is_loopback(host) else "Anyone who has the link and reaches this machine can read and stop runs."
        )
        announce(f"http://{shown}:{number}/?token={token}", warning)
        uvicorn.Server(config).run(sockets=[bound])


def _bind(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wanted = [port] if port is not None else [DEFAULT_PORT, 0]
    for number in wanted:
        bound = socket.socket(family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, number))
            bound.listen()  # a request that comes before the server is ready waits
            return bound
        except OSError as error:
            bound.close()
            if number == wanted[-1]:
                raise ValueError(f"Cannot listen on {host}:{number}: {error.strerror}. Choose another port.") from None
    raise AssertionError
