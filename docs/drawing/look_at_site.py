"""Screenshots of the built site, to be looked at: front page, guides, API, benchmarks; light, dark, on a phone's width.

    make docs && python docs/drawing/look_at_site.py [--site site] [--to site-pictures]

Also names code and tables that are wider than their place. Needs chromium and playwright.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

PAGES = ("", "getting-started", "checkpoints", "drill", "coming-from/torchrun", "api/train", "benchmarks")
LOOKS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light")}
HEIGHT = 1600
CLIPPED = """() => [...document.querySelectorAll('.md-content :is(pre > code, table, svg, img)')]
    .filter(one => one.tagName == 'CODE' && one.scrollWidth > one.clientWidth + 1
        || one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => one.tagName.toLowerCase() + ': ' + one.textContent.trim().slice(0, 60))"""


def look(page: Page, site: Path, name: str, picture: Path) -> list[str]:
    page.goto((site / name / "index.html").resolve().as_uri())
    page.screenshot(path=str(picture))
    return list(page.evaluate(CLIPPED))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--site", type=Path, default=Path("site"))
    parser.add_argument("--to", type=Path, default=Path("site-pictures"))
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("pages", nargs="*", default=list(PAGES))
    args = parser.parse_args()
    args.to.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.chromium, args=["--no-sandbox"])
        for kind, (width, scheme) in LOOKS.items():
            page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
            for name in args.pages:
                picture = args.to / f"{name.replace('/', '-') or 'front'}-{kind}.png"
                clipped = look(page, args.site, name, picture)
                print(f"{picture}: {'; '.join(clipped) or 'nothing is clipped'}", flush=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
