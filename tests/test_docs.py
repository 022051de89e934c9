"""The pages under docs/: their Python blocks run, in order and in one namespace, and print what is shown below them.

An indented block right after a Python block is its output; `...` in it stands for anything.
"""

import codeop
import contextlib
import doctest
import io
import os
import pathlib
import re
import runpy
import subprocess
import sys
import time

import pytest

from tandem.ops.define import PRIMITIVES
from tandem.passes.graph_pass import PASSES
from tandem.session import reset_default_graph
from tests.browser import Browser

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
ELSEWHERE = {"data", "checkpoints", "complex"}  # tests/data/test_pages.py and tests/ops/test_complexes.py run these
BLOCK = re.compile(r"^```python\n(.*?)^```\n((?:\n+(?: {4}[^\n]*\n)+)?)", re.DOTALL | re.MULTILINE)
PAGES = sorted(p.stem for p in DOCS.glob("*.md") if p.stem not in ELSEWHERE and BLOCK.search(p.read_text()))
NEEDS = {"quick_start": "sklearn", "onnx": "onnx"}


def blocks(page):
    text = (DOCS / f"{page}.md").read_text()
    for found in BLOCK.finditer(text):
        # Lines are numbered as in the page, so that errors and tracebacks point into it.
        code = "\n" * text[: found.start(1)].count("\n") + found[1]
        yield code, "".join(line[4:] + "\n" for line in found[2].strip("\n").splitlines())


@pytest.fixture
def registries():
    """What pages define stays theirs: other tests look at these lists."""
    before = [(registry, dict(registry)) for registry in (PRIMITIVES, PASSES)]
    yield
    for registry, contents in before:
        registry.clear()
        registry.update(contents)


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    if page in NEEDS:
        pytest.importorskip(NEEDS[page])
    monkeypatch.chdir(tmp_path)
    reset_default_graph()  # names of other pages are not taken
    names = {"__name__": page}
    compiled = codeop.Compile()  # remembers `from __future__` from block to block, as one file would
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for code, expected in blocks(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compiled(code, str(DOCS / f"{page}.md"), "exec"), names)
        if expected:
            assert checker.check_output(expected, printed.getvalue(), flags), (
                f"expected:\n{expected}\ngot:\n{printed.getvalue()}"
            )


def test_links_between_pages_lead_somewhere():
    broken = []
    for path in (*DOCS.glob("*.md"), ROOT / "README.md"):
        for target in re.findall(r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)", path.read_text()):
            if not (path.parent / target).exists():
                broken.append(f"{path.name}: {target}")
    assert not broken


def test_every_example_is_on_its_page():
    listed = (DOCS / "examples.md").read_text()
    assert [] == [p.name for p in sorted((ROOT / "examples").glob("*.py")) if f"`{p.name}`" not in listed]


def test_docstrings_become_markdown():
    pytest.importorskip("griffe")
    as_markdown = runpy.run_path(str(ROOT / "tools" / "docs_docstrings.py"))["as_markdown"]
    text = "Sum of `a_b`.\n\nx: (*s) -> (*t)\ny: (n)\n\n>>> f(x)\n1\n\nMore: a < b."
    assert as_markdown(text) == (
        "Sum of `a_b`.\n\nx: (\\*s) -> (\\*t)  \ny: (n)\n\n\n```pycon\n>>> f(x)\n1\n```\n\n\nMore: a &lt; b."
    )


def test_the_reference_has_what_is_public():
    reference = runpy.run_path(str(ROOT / "tools" / "docs_reference.py"))
    packages, families = reference["packages"](), reference["families"]()
    assert [] == [title for title, names in packages.items() if not names]
    assert {"tandem.nn.linear.Linear", "tandem.nn.module.Module"} <= set(packages["nn"])
    assert "tandem.optim.adam.AdamW" in packages["optim"]
    assert "tandem.ops.activation.gelu" in families["Activation"]
    assert sum(map(len, families.values())) > 400


def test_every_page_of_the_reference_belongs_to_a_topic():
    reference = runpy.run_path(str(ROOT / "tools" / "docs_reference.py"))
    made = reference["pages"]()
    assert list(made) == list(reference["TOPICS"])
    named = [title for titles in reference["TOPICS"].values() for title in titles]
    assert sorted(named) == sorted(title for found in made.values() for title in found)


@pytest.mark.slow
def test_the_site_is_built_and_searched_from_the_disk(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    with Browser() as page:
        page.open((tmp_path / "index.html").as_uri())
        page.run(
            "(() => { const field = document.querySelector('[data-md-component=search-query]'); field.focus();"
            " field.value = 'scaled_dot_product_attention'; field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})) })()"
        )
        until = time.monotonic() + 300
        while not page.run("document.querySelectorAll('.md-search-result__item').length"):
            assert time.monotonic() < until, page.problems
            time.sleep(0.1)
        assert page.problems == []  # nothing was asked of the network
