"""Trainer, metrics, logs, pages and the tandem command."""

import json
import os
import re
import signal

import numpy as np
import pytest

import tandem as td
from tandem.cli import main
from tandem.training import (
    History,
)
from tests.training.runs import make


def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(tmp_path, capsys):
    whole, loader = make()
    whole.fit(loader, 3)

    class Press(td.training.Callback):
        def on_step_end(self, trainer, step, loss):
            if step == 8:
                os.kill(os.getpid(), signal.SIGINT)

    trainer, loader = make(tmp_path, callbacks=[Press()])
    history = trainer.fit(loader, 3)
    assert history.stopped == "interrupted" and trainer.step == 8
    assert "run the same again to go on" in capsys.readouterr().err
    again, loader = make(tmp_path)
    again.fit(loader, 3)
    assert again.step == 18
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


# -- the command


def test_doctor_and_bench(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "self-test: passed" in out and re.search(r"CPU: .* threads", out)
    assert main(["bench", "--seconds", "0.01"]) == 0
    assert "training step" in capsys.readouterr().out


def test_train_by_function_and_by_file(tmp_path, capsys):
    (tmp_path / "project.py").write_text(
        "import tandem as td\nfrom tests.training.runs import make as build\n\n"
        "def make(scale=1.0):\n    trainer, loader = build()\n    return trainer, loader, loader\n"
    )
    folder = tmp_path / "run"
    config = tmp_path / "config.json"
    what = f"{tmp_path / 'project.py'}:make"
    config.write_text(json.dumps({"function": what, "arguments": {"scale": 2.0}, "epochs": 2, "folder": str(folder)}))
    assert main(["train", str(config)]) == 0
    assert (folder / "page.html").exists() and len(History.load(folder / "history.json").epochs) == 2
    assert main(["train", what, "--epochs", "3", "--folder", str(folder)]) == 0
    assert len(History.load(folder / "history.json").epochs) == 3
    assert main(["train", "nowhere.json"]) == 1
    assert main(["train", f"{tmp_path / 'project.py'}:nothing"]) == 1
    assert "has no 'nothing'" in capsys.readouterr().err
    assert main(["view", str(tmp_path)]) == 1


def test_an_epoch_begins_without_a_loss():
    pytest.importorskip("rich")
    from tandem.training.progress import Progress

    progress = Progress(True)
    progress.live = True
    with progress:
        progress.start("epoch 1/2", 4)
        assert progress._bar.tasks[0].fields["now"] == ""
        progress.advance(0.5, 8)
        assert progress._bar.tasks[0].fields["now"].startswith("loss 0.5000")
