"""Parts of HTML pages as text, made without any library, for ``holdfast ui``, reports, drills and notebooks."""

from pathlib import Path


def picture_styles() -> str:
    """The style sheet that the parts need."""
    return Path(__file__).with_name("pictures.css").read_text()
