"""The page of a graph: what it is written from, and what it does in a browser."""

import pytest

import tandem as td
from tests.pages import browser as browsers
from tests.pages.data import data_in
from tests.pages.models import training_step

needs_browser = pytest.mark.skipif(not browsers.is_here(), reason="needs chromium and chromedriver")


@pytest.fixture(scope="module")
def page():
    return training_step(1).graph().view()


@pytest.fixture(scope="module")
def data(page):
    return data_in(page)


def path(data: dict, scope: int) -> str:
    names = []
    while scope:
        names.insert(0, data["scopes"][scope]["name"])
        scope = data["scopes"][scope]["parent"]
    return "/".join(names)


def test_nodes_belong_to_phases_and_modules(data):
    paths = {path(data, n["scope"]) for n in data["levels"]["operators"]["nodes"]}
    for phase in ("forward", "backward", "update"):
        assert {f"{phase}/GPT/h/0/attn", f"{phase}/GPT/h/0/ln_1", f"{phase}/GPT/head"} <= paths


def test_inputs_have_the_names_of_parameters_and_arguments(data):
    names = {f"{path(data, n['scope'])}/{n['title']}" for n in data["levels"]["steps"]["nodes"] if n["kind"] == "input"}
    wanted = {"inputs/ids", "inputs/targets", "inputs/h/0/attn/in_proj_weight", "inputs/h/0/mlp/0/weight/exp_avg"}
    assert wanted <= names
    products = [n for n in data["levels"]["steps"]["nodes"] if n["title"].endswith(": matmul")]
    assert any("h.0.mlp.0.weight" in n["names"] for n in products)


def test_costs_sources_and_memory_are_there(data):
    level = data["levels"]["operators"]
    product = next(n for n in level["nodes"] if n["title"] == "matmul")
    assert product["cost"] > max(n["cost"] for n in level["nodes"] if n["title"] == "reshape") == 0
    assert product["file"] == "models.py" and "self.mlp = nn.Sequential" in data["files"]["models.py"]
    assert product["bytes"] > 0 and product["line"] > 0
    assert data["title"] == "step" and any("peak" in fact for fact in data["facts"])
    count = len(level["nodes"])
    assert all(0 <= a < count and 0 <= b < count for a, b, *_ in level["edges"])


def test_pages_need_nothing_else_and_notebooks_show_them(page):
    assert "http" not in page.replace("http://www.w3.org", "")
    frame = td.compile(lambda x: x + 1).graph(td.ones(2))._repr_html_()
    assert frame.startswith("<iframe") and "srcdoc" in frame


def test_text_of_users_cannot_end_the_data(tmp_path):
    def step(x):
        return x + 1  # </script><script>alert(1)</script>

    page = td.compile(step).graph(td.ones(2)).view()
    assert "alert(1)</script>" not in page
    assert "</script><script>alert(1)" in data_in(page)["files"]["test_view.py"]


def test_programs_from_the_disk_have_names_too():
    def run():
        model = td.nn.Linear(3, 2)
        step = td.compile(lambda batch: model(batch).sum())
        step(td.ones(4, 3))
        return data_in(step.graph().view())

    run()
    titles = [n["title"] for n in run()["levels"]["operators"]["nodes"] if n["kind"] == "input"]
    assert {"batch", "weight", "bias"} <= set(titles)


# -- in a browser


@pytest.mark.slow
@needs_browser
def test_a_training_step_of_five_thousand_nodes_can_be_explored(tmp_path):
    graph = training_step(7).graph()
    assert len(graph.nodes) > 5000
    graph.view(tmp_path / "graph.html")
    with browsers.browser() as b:
        b.open(tmp_path / "graph.html")
        visible = b.wait("document.querySelectorAll('.item').length")
        assert 5 < visible < 80  # what can be taken in at once
        names = b.run("return [...document.querySelectorAll('.item .t')].map(t => t.textContent)")
        assert {"▾ forward", "▾ backward"} <= set(names)
        # Search for a parameter: its reader is opened, chosen, and shown with its source.
        b.type("#search", "h.3.attn.out_proj.weight matmul forward")
        assert b.run("return document.querySelectorAll('#hits div').length") > 1
        b.type("#search", "\ue007")
        b.wait("document.querySelector('.item.on')")
        side = b.run("return document.getElementById('side').textContent")
        assert "h.3.attn.out_proj.weight" in side and "forward / GPT / h / 3 / attn" in side
        assert "self.attn(y, y, y" in b.run("return document.querySelector('pre .here').textContent")
        # Zoom.
        scale = "+document.querySelector('.canvas svg > g').getAttribute('transform').match(/scale\\((.*)\\)/)[1]"
        before = b.run(f"return {scale}")
        b.wheel(".canvas", -240)
        assert b.run(f"return {scale}") > before
        # Close all, and open a phase by a double click.
        b.click("#none")
        assert b.run("return document.querySelectorAll('.item').length") <= 8
        forward = (
            "[data-id=s"
            + str(
                next(
                    i
                    for i, s in enumerate(data_in((tmp_path / "graph.html").read_text())["scopes"])
                    if s["name"] == "forward"
                )
            )
            + "]"
        )
        b.click(forward, times=2)
        assert b.run("return document.querySelectorAll('.item').length") > 8
        # All 5,000 operators at once.
        b.run("const l = document.getElementById('level'); l.value = 'operators'; l.dispatchEvent(new Event('change'))")
        b.click("#all")
        assert b.run("return document.querySelectorAll('.item').length") > 3000
        b.click("#fit")
        b.run("const c = document.getElementById('colour'); c.value = 'memory'; c.dispatchEvent(new Event('change'))")
        assert b.logs() == []


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_small_screens_and_dark_ones(page, tmp_path, dark):
    (tmp_path / "graph.html").write_text(page)
    with browsers.browser(420, 800, dark) as b:
        b.open(tmp_path / "graph.html")
        b.wait("document.querySelectorAll('.item').length")
        assert b.run("return document.documentElement.scrollWidth <= innerWidth")
        shade = b.run("return getComputedStyle(document.body).backgroundColor")
        assert (shade == "rgb(15, 21, 33)") is dark
        assert b.logs() == []
