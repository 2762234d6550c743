"""Runs the blocks of a page as one script: ``python page_runner.py PAGE``, in the directory that they may fill.

The blocks share this module's namespace, which is ``__main__``, so functions reach workers as those of a script do.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.docs.page_blocks import PYTHON, SHELL, Block, blocks, runnable


def _run(block: Block) -> None:
    print(f"--- {block.page}:{block.line}", flush=True)
    if block.file:
        Path(block.file).write_text(block.code)
    elif block.language in PYTHON:
        # Blank lines before it, so that an error names the page's own line.
        code = compile("\n" * (block.line - 1) + block.code, block.page, "exec", dont_inherit=True)
        exec(code, globals())
    elif block.language in SHELL and runnable(block).strip():
        done = subprocess.run(["bash", "-eu", "-o", "pipefail", "-c", runnable(block)], stdin=subprocess.DEVNULL)
        if done.returncode != block.exits:
            sys.exit(f"{block.page}:{block.line}: exit code {done.returncode}, not {block.exits}")


if __name__ == "__main__":
    for _block in blocks(Path(sys.argv.pop(1))):
        if not _block.not_run:
            _run(_block)
