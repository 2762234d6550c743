"""The guides of the frameworks run, each page as one script in an empty directory, and their examples pass drills."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.docs.page_blocks import name_of, needs_frameworks, pages
from support.frameworks.framework_pages import ALL_FAULTS_TIMEOUT_S, drill, drill_all, run_page

EXAMPLES = ["accelerate", "jax", "lightgbm", "lightning", "sklearn", "tensorflow", "transformers", "xgboost"]


@pytest.mark.parametrize("page", [page for page in pages() if needs_frameworks(page)], ids=name_of)
def test_the_page_runs(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


@pytest.mark.parametrize("framework", EXAMPLES)
def test_the_example_passes_a_drill(framework: str, tmp_path: Path) -> None:
    drill(f"{framework}_training.py", tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(ALL_FAULTS_TIMEOUT_S)
@pytest.mark.parametrize("framework", EXAMPLES)
def test_the_example_passes_a_drill_of_all_faults(framework: str, tmp_path: Path) -> None:
    drill_all(f"{framework}_training.py", tmp_path)
