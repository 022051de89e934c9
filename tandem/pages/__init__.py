"""Pages: HTML files that need nothing else. Python writes the data, a script of this folder draws it.

`tests/pages` opens them in a browser.
"""

from __future__ import annotations

import functools
import html
import json
import os

_HERE = os.path.dirname(__file__)


@functools.cache
def asset(name: str) -> str:
    """A file of this folder."""
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return file.read()


def page(title: str, data: dict, script: str, *, noscript: str = "") -> str:
    """A page that a script of this folder draws from data; noscript: what is shown where scripts do not run."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/").replace("<!--", "<\\!--")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title>\n'
        f'<style>{asset("style.css")}</style></head><body>\n<div id="app"></div>\n'
        f'<noscript><pre>{html.escape(noscript)}</pre></noscript>\n<script id="data" type="application/json">{text}</script>\n'
        f"<script>{asset(script)}</script>\n</body></html>\n"
    )


def frame(text: str, height: int = 600, title: str = "page") -> str:
    """A page inside of another one, as notebooks show it."""
    return (
        f'<iframe title="{html.escape(title)}" srcdoc="{html.escape(text, quote=True)}" '
        f'style="width:100%;height:{height}px;border:1px solid #8884;border-radius:6px"></iframe>'
    )
