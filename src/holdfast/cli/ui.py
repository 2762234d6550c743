"""Show runs and experiments in a browser, running or not, on this machine or in a bucket. Press Ctrl+C to quit.

The server listens on this machine only. It shows nothing without the token in the link that it prints.
"""

from __future__ import annotations

import argparse
import signal
import webbrowser

from holdfast.cli import output, paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "storage_paths", metavar="STORAGE_PATH", nargs="*", help=f"where the runs are: {paths.STORAGE_HELP}"
    )
    parser.add_argument("--port", type=int, metavar="N", help="port to listen on (default: 8484, or any free one)")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default: 127.0.0.1). With another one, everyone who has the link can read your "
        "runs and stop them, and the connection is not encrypted: prefer an SSH tunnel",
    )
    parser.add_argument("--open", action="store_true", help="open the link in a browser")


def run(arguments: argparse.Namespace) -> int:
    try:
        from holdfast.web.serving import serve
    except ImportError as error:
        raise ValueError(f"holdfast ui needs {error.name}: run pip install 'holdfast[ui]'") from None
    locations = [paths.storage_location(text) for text in arguments.storage_paths or [None]]

    def announce(url: str, warning: str) -> None:
        if arguments.json:
            output.print_json_line({"url": url, "storage": [str(location) for location in locations]})
        else:
            output.say("Holdfast UI is running. Open this link:", flush=True)
            output.say(f"  {url}", flush=True)
            output.say(f"It shows {', '.join(map(str, locations))}. Press Ctrl+C to quit.", flush=True)
        if warning:
            output.note(f"warning: {warning}")
        if arguments.open:
            webbrowser.open(url)

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a browser that leaves a page must not end the server
    serve(locations, arguments.host, arguments.port, announce)
    return 0
