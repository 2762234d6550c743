"""Cells in a real Jupyter kernel, and the notebook as the HTML page that nbconvert makes of it.

As a script in a process of its own: Jupyter's client leaves a thread behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PATIENCE_S = 180


def notebook_page(cells: Sequence[str], directory: Path) -> tuple[Path, list[list[str]]]:
    """The page, and the types of each cell's outputs. An exception of a cell ends the script."""
    command = [sys.executable, __file__, json.dumps(cells), str(directory)]
    shared = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]  # cells use what tests share
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, shared))}
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    return directory / "page.html", json.loads(done.stdout.splitlines()[-1])


def _main(cells: list[str], directory: Path) -> None:
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    resources = {"metadata": {"path": str(directory)}}
    notebook = NotebookClient(notebook, timeout=PATIENCE_S, kernel_name="python3", resources=resources).execute()
    page, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    Path(directory, "page.html").write_text(page)
    print(json.dumps([[output.output_type for output in cell.outputs] for cell in notebook.cells]))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]), Path(sys.argv[2]))
