"""An exported network in a real browser: digits drawn with the mouse, recognised by WebAssembly."""

import importlib.util
import itertools
import math
import pathlib
import shutil
import threading

import pytest

from tests.browser import Browser

pytestmark = pytest.mark.slow

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "digits_page.py"


def circle(x: float, y: float, width: float, height: float, begin: float = 0.0, end: float = 1.0) -> list:
    turns = [begin + (end - begin) * i / 30 for i in range(31)]
    return [(x + width * math.sin(2 * math.pi * t), y - height * math.cos(2 * math.pi * t)) for t in turns]


def lines(*corners) -> list:
    points = []
    for (x0, y0), (x1, y1) in itertools.pairwise(corners):
        points += [(x0 + (x1 - x0) * i / 12, y0 + (y1 - y0) * i / 12) for i in range(13)]
    return points


DRAWINGS = {
    0: circle(128, 128, 55, 85),
    1: lines((128, 45), (128, 210)),
    3: [*circle(122, 85, 45, 40, -0.15, 0.5), *circle(122, 168, 50, 43, 0.0, 0.68)],
    7: lines((75, 55), (180, 55), (115, 210)),
}


def test_digits_drawn_with_the_mouse_are_recognised(tmp_path):
    for program in ("clang", "wasm-ld", "chromium"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    if not pathlib.Path("/usr/include/wasm32-wasi").exists():
        pytest.skip("needs the headers of wasi-libc")
    pytest.importorskip("sklearn")
    found = importlib.util.spec_from_file_location("digits_page", EXAMPLE)
    example = importlib.util.module_from_spec(found)
    found.loader.exec_module(example)
    example.build(example.train(), tmp_path)
    server = example.serve(tmp_path, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with Browser() as page:
            page.open(f"http://localhost:{server.server_port}/")
            page.wait_for("document.body.dataset.ready")
            left, top = page.run("(b => [b.left, b.top])(document.getElementById('paper').getBoundingClientRect())")
            answers = {}
            for digit, points in DRAWINGS.items():
                page.run("document.getElementById('clear').click()")
                page.drag([(left + x, top + y) for x, y in points])
                answers[digit] = page.wait_for("document.getElementById('answer').textContent")
            assert answers == {digit: str(digit) for digit in DRAWINGS}
            assert not page.problems
    finally:
        server.shutdown()
        server.server_close()
