"""The same job in every framework, as tabs on the front page: the first script of each guide, which the tests run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig

_MARK = re.compile(r"<!-- tabs of frameworks -->\n.*?<!-- end of tabs -->\n", re.DOTALL)
_FIRST = re.compile(r"```python[^\n]*\n(.*?)```", re.DOTALL)
GUIDES = {
    "PyTorch": "pytorch.md",
    "Lightning": "lightning.md",
    "Transformers": "transformers.md",
    "Keras": "tensorflow.md",
    "JAX": "jax.md",
    "XGBoost": "xgboost.md",
    "LightGBM": "lightgbm.md",
    "scikit-learn": "sklearn.md",
    "Horovod": "horovod.md",
}


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, **_: Any) -> str:
    return _MARK.sub(lambda _: tabs(Path(config.docs_dir)), markdown) if page.file.src_uri == "index.md" else markdown


def tabs(docs: Path) -> str:
    parts = []
    for name, guide in GUIDES.items():
        source = docs.parent / "README.md" if name == "PyTorch" else docs / guide  # the shortest script there is
        code = _FIRST.search(source.read_text(encoding="utf-8"))
        assert code is not None, f"{guide} has no script"
        block = f"```python\n{code[1]}```\n\n[The {name} guide]({guide})\n"
        parts.append(f'=== "{name}"\n\n' + "".join(f"    {line}\n" if line else "\n" for line in block.splitlines()))
    return "\n".join(parts) + "\n"
