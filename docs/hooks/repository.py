"""Pages may link to files of the repository that are no pages. On GitHub such a link leads to the file; on the site the
file becomes a page of its own, below ``repository/``, and its own links are followed in the same way.

Decisions are in the navigation without being named there, so that adding one is adding a file.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".md": "markdown"}
_origins: dict[str, Path] = {}  # a page's place on the site: the file that it was made from


def on_config(config: MkDocsConfig) -> None:
    folder = Path(config.docs_dir, "decisions")
    decisions: list[Any] = [{_title(file): f"decisions/{file.name}"} for file in sorted(folder.glob("0*.md"))]
    entries: list[Any] = config.nav or []
    for entry in entries:
        for section in entry.values():
            if isinstance(section, list):
                for item in section:
                    if item == {"Decisions": []}:
                        item["Decisions"] = decisions


def on_files(files: Files, config: MkDocsConfig) -> None:
    _origins.clear()
    todo = [file for file in files.documentation_pages() if not file.src_uri.startswith("api/")]
    while todo:
        page = todo.pop()
        origin = _origins.get(page.src_uri) or Path(config.docs_dir, page.src_uri)
        if origin.suffix != ".md":
            continue
        for target in _outside(origin.read_text(encoding="utf-8"), origin, config):
            place = _place(target, config)
            if place not in _origins:
                _origins[place] = target
                made = File.generated(config, place, content=_content(target))
                files.append(made)
                todo.append(made)


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, **_: Any) -> str:
    origin = _origins.get(page.file.src_uri) or Path(config.docs_dir, page.file.src_uri)

    def lead(match: re.Match[str]) -> str:
        path, hash_sign, anchor = match[2].partition("#")
        target = _target(path, origin)
        if target is None or (origin.is_relative_to(config.docs_dir) and target.is_relative_to(config.docs_dir)):
            return match[0]
        way = posixpath.relpath(_place(target, config), posixpath.dirname(page.file.src_uri) or ".")
        return f"[{match[1]}]({way}{hash_sign}{anchor})"

    return _LINK.sub(lead, markdown) if origin.suffix == ".md" or origin.is_dir() else markdown


def _outside(markdown: str, origin: Path, config: MkDocsConfig) -> list[Path]:
    found = (_target(match[2].partition("#")[0], origin) for match in _LINK.finditer(markdown))
    return [target for target in found if target is not None and not target.is_relative_to(config.docs_dir)]


def _target(path: str, origin: Path) -> Path | None:
    if not path or "://" in path or path.startswith("mailto:"):
        return None
    target = ((origin if origin.is_dir() else origin.parent) / path).resolve()
    return target if target.exists() else None


def _place(target: Path, config: MkDocsConfig) -> str:
    if target.is_relative_to(config.docs_dir):
        return target.relative_to(config.docs_dir).as_posix()
    relative = target.relative_to(_root(config)).as_posix()
    return f"repository/{relative}" if target.suffix == ".md" else f"repository/{relative}.md"


def _content(target: Path) -> str:
    if target.is_dir():
        names = sorted(file.name for file in target.iterdir() if file.suffix in _LANGUAGES)
        return f"# {target.name}/\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".md":
        return text
    return f"# {target.name}\n\n````{_LANGUAGES.get(target.suffix, 'text')}\n{text}````\n"


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _title(file: Path) -> str:
    return file.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
