"""The pages for maintainers name files, folders and names that exist."""

from __future__ import annotations

import importlib
import re

import pytest

from support.repository import ROOT

SRC = ROOT / "src/holdfast"
PAGES = {page.name: page.read_text() for page in sorted((ROOT / "docs/maintaining").glob("*.md"))}
SOURCES = "\n".join(path.read_text() for path in sorted(SRC.rglob("*.py")))
DEFINED = set(re.findall(r"^\s*(?:class|def) (\w+)", SOURCES, re.MULTILINE))


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    paths = [text for text in quoted(PAGES[page]) if re.fullmatch(r"[\w./-]+\.(py|md|yml|toml)|Makefile", text)]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists() and not (SRC / path).exists()] == []


def test_names_in_the_journeys_exist() -> None:
    """Classes, and methods of classes."""
    names = {
        part
        for text in quoted(PAGES["journeys.md"])
        if re.fullmatch(r"[A-Z]\w+(\.\w+)?", text)
        for part in text.split(".")
    }
    assert {name for name in names if name not in DEFINED} <= {"SIGKILL"}


def test_what_a_journey_finds_in_a_file_is_there() -> None:
    """A name after a file, or a file and a name of which one is in brackets after the other."""
    text = " ".join(PAGES["journeys.md"].split())
    said = re.findall(r"`([\w/]+\.py)`: `([\w.]+)`", text)
    said += [(path, name) for name, path in re.findall(r"`([A-Za-z_][\w.]*)` \(`([\w/]+\.py)`\)", text)]
    said += re.findall(r"`([\w/]+\.py)` \(`([A-Za-z_][\w.]*)`\)", text)
    assert len(said) > 25
    for path, name in said:
        *_, last = name.split(".")
        source = (SRC / path).read_text()
        assert re.search(rf"^ *(?:class|def) {last}\b", source, re.MULTILINE), f"{name} is not in {path}"


def test_names_in_the_glossary_are_those_of_the_code() -> None:
    names = re.findall(r"`(holdfast[\w.]*)` \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert len(names) > 15
    assert [name for name in names if not exists(name)] == []


def exists(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return bool(module) and hasattr(importlib.import_module(module), attribute)
    return True


def test_the_architecture_names_every_folder() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    folders = [path.name for path in SRC.iterdir() if (path / "__init__.py").exists()]
    missing = [folder for folder in folders if not re.search(rf"^      {folder}/ ", text, re.MULTILINE)]
    files = [path.name for path in SRC.glob("*.py") if not path.name.startswith("__")]
    missing += [file for file in files if not re.search(rf"^      {re.escape(file)} ", text, re.MULTILINE)]
    assert missing == []


def test_every_recipe_is_a_table_of_files() -> None:
    recipes = re.split(r"^## ", PAGES["recipes.md"], flags=re.MULTILINE)[1:]
    assert len(recipes) >= 4
    assert [recipe.partition("\n")[0] for recipe in recipes if "| file | change |" not in recipe] == []
