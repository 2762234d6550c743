"""Write the page of a run or experiment to one HTML file, to share or to keep. Browsers open it without network."""

from __future__ import annotations

import argparse
from pathlib import Path

from holdfast.cli import output, paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help=paths.RUN_HELP)
    parser.add_argument(
        "--html", metavar="FILE", help="the file to write (default: the name of the run or experiment, with .html)"
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        from holdfast.web.report_file import report_page
    except ImportError as error:
        raise ValueError(f"holdfast report needs {error.name}: run pip install 'holdfast[ui]'") from None
    stored = paths.open_run(arguments.run_path)
    file = Path(arguments.html or f"{stored.location.name}.html")
    if file.is_dir() or not file.resolve().parent.is_dir():
        raise ValueError(f"--html {file}: cannot be written. Choose a file in a directory that exists.")
    file.write_text(report_page(stored), encoding="utf-8")
    if arguments.json:
        output.print_json({"path": str(stored.location), "file": str(file)})
    else:
        output.say(f"Wrote {file}.")
    return 0
