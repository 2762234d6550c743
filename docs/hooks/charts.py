"""Charts are part of the page on the site, so that their colours follow the reader's choice of light or dark.

On GitHub the same line is an image, whose own style follows the system.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig

_IMAGE = re.compile(r"^!\[([^\]]*)\]\(((?:\.\./)*pictures/[\w-]+\.svg)\)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, **_: Any) -> str:
    folder = Path(config.docs_dir, page.file.src_uri).parent

    def inline(match: re.Match[str]) -> str:
        file = folder / match[2]
        text = file.read_text(encoding="utf-8").strip() if file.exists() else ""
        if 'class="bars"' not in text:
            return match[0]
        return f'<div class="chart">{re.sub("<style>.*?</style>", "", text)}</div>'

    return _IMAGE.sub(inline, markdown)
