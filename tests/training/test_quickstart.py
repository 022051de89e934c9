"""The first program."""

import pytest


def test_quickstart(tmp_path, capsys):
    pytest.importorskip("sklearn")
    from tandem.training.quickstart import main as quickstart

    accuracy = quickstart(epochs=3, out=str(tmp_path))
    assert accuracy > 0.9
    assert "<iframe" in (tmp_path / "page.html").read_text()
    assert "times as fast" in capsys.readouterr().out
