"""The page of a server."""

from __future__ import annotations

import pytest

from tests.browser import Browser
from tests.serve.sockets import ask_all

pytest.importorskip("uvicorn")


@pytest.mark.slow
def test_the_status_page_in_a_browser(server):
    port, _ = server
    ask_all(port, 3)
    with Browser() as page:
        page.open(f"http://127.0.0.1:{port}/")
        assert page.run("document.title") == "Tandem server"
        cells = page.run("[...document.querySelectorAll('tbody td')].map(c => c.textContent)")
        assert cells[:3] == ["toy", "1", "tensor"] and "x: f32" in cells[3]
        assert "ready" in page.run("document.querySelector('dl').textContent")
        assert ", 0 refused" in page.run("document.querySelector('dl').textContent")
        page.run("document.querySelector('a[href=\"/metrics\"]').click()")
        page.wait_for("document.body.textContent.includes('tandem_requests_total')")
        assert not [p for p in page.problems if "favicon" not in p]
