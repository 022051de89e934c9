"""Figures that a program has measured, as a page: `tandem view figures.json`."""

import json
import pathlib
import xml.etree.ElementTree as ElementTree

import pytest

from tandem.cli import main
from tandem.pages.charts import chart

FIGURE = {"title": "6: <null>", "x": "workers", "y": "ms", "series": {"16 & more": [[1, 2.0], [64, 4.0]]}}


def test_view_writes_the_page_of_figures(tmp_path, capsys):
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"title": "Servers", "figures": [FIGURE, FIGURE], "text": "1 < 2"}))
    assert main(["view", str(path)]) == 0
    page = pathlib.Path(capsys.readouterr().out.strip())
    assert page == tmp_path / "figures.html"
    text = page.read_text()
    assert (
        text.count("<svg") == 2
        and "6: &lt;null&gt;" in text
        and "<pre>1 &lt; 2</pre>" in text
        and "16 &amp; more" in text
    )


def test_the_figures_of_the_docs_are_such_a_file(tmp_path):
    found = json.loads((pathlib.Path(__file__).parents[2] / "docs/figures.json").read_text())
    assert [f["title"].partition(":")[0] for f in found["figures"]] == ["6", "8", "9"]


def test_a_chart_is_well_formed_and_has_its_points():
    root = ElementTree.fromstring(chart(**FIGURE))
    points = [e for e in root.iter() if e.tag.endswith("circle")]
    assert len(points) == 2
    assert float(points[0].attrib["cy"]) > float(points[1].attrib["cy"])  # 2 is below 4


def test_what_is_not_complete_is_said(tmp_path, capsys):
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"figures": [{"title": "1"}]}))
    assert main(["view", str(path)]) != 0
    assert "not complete" in capsys.readouterr().err


@pytest.mark.parametrize("series", [{}, {"a": []}])
def test_charts_without_points(series):
    ElementTree.fromstring(chart("none", "x", "y", series))
