"""The page of a run."""

import json
import math
import re

import tandem as td
from tandem.cli import main
from tandem.training import (
    History,
)
from tests.training.runs import make


def test_a_loss_that_is_no_number_ends_the_command_with_1_and_is_on_the_page(tmp_path, capsys):
    (tmp_path / "diverging.py").write_text(
        "from tests.training.test_training import make as build\n\n"
        "def make():\n    trainer, loader = build()\n    trainer.optimizer.param_groups[0]['lr'] = 1e38\n"
        "    return trainer, loader\n"
    )
    folder = tmp_path / "run"
    assert main(["train", f"{tmp_path / 'diverging.py'}:make", "--folder", str(folder)]) == 1
    told = capsys.readouterr().err
    assert re.search(r"stopped after step \d+ in epoch 1: the loss is (nan|inf)", told)
    assert "fix: a smaller learning rate" in told

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    state = json.loads((folder / "history.json").read_text(), parse_constant=refuse)
    assert state["steps"][-1]["loss"] is None
    assert state["failed"]
    assert "stopped: the loss is" in (folder / "page.html").read_text()
    assert math.isnan(History.load(folder / "history.json").steps[-1]["loss"])


def test_view_shows_runs_that_go_on_or_were_killed_with_their_graph(tmp_path):
    pages = []

    class Look(td.training.Callback):
        def on_step_end(self, trainer, step, loss):
            if step in (3, 9):
                assert main(["view", str(tmp_path)]) == 0
                pages.append((tmp_path / "page.html").read_text())

    trainer, loader = make(tmp_path, callbacks=[Look()])
    trainer.fit(loader, 2)
    assert all("has not ended" in page and "<polyline" in page for page in pages)
    assert "<iframe" not in pages[0]
    assert "<iframe" in pages[1]
    assert main(["view", str(tmp_path)]) == 0
    final = (tmp_path / "page.html").read_text()
    assert "has not ended" not in final.partition("<iframe")[0]
    assert "<iframe" in final
