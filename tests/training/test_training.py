"""Trainer, metrics, logs, pages and the tandem command."""

import json
import math
import os
import re
import signal
import struct

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.cli import main
from tandem.training import (
    AUC,
    F1,
    Accuracy,
    CSVLog,
    EarlyStopping,
    History,
    JSONLog,
    Perplexity,
    TensorBoardLog,
    Trainer,
    write_page,
)
from tandem.training.logs import crc32c


def data(n=96):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 4)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] > 0).astype(np.int64)
    return td.data.TensorDataset(td.tensor(x), td.tensor(y))


def make(folder=None, compile=True, **settings):
    td.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
    optimizer = td.optim.Adam(model.parameters(), lr=1e-2)
    loader = td.data.DataLoader(data(), batch_size=16, shuffle=True, seed=3)
    settings.setdefault("metrics", {"accuracy": Accuracy()})
    return Trainer(
        model, optimizer, nn.CrossEntropyLoss(), compile=compile, folder=folder, progress=False, **settings
    ), loader


@pytest.mark.parametrize("compile", [False, True])
def test_a_model_learns(compile, tmp_path):
    trainer, loader = make(compile=compile, clip_norm=1.0)
    history = trainer.fit(loader, 12, validation=td.data.DataLoader(data(), batch_size=48))
    assert history.epochs[-1]["validation_accuracy"] > 0.9
    assert history.epochs[-1]["train_loss"] < 0.7 * history.epochs[0]["train_loss"]
    assert trainer.step == 72 and len(history.steps) == 72
    assert trainer.model.training
    assert len(trainer.predict(loader)) == 6
    page = write_page(tmp_path / "page.html", history, "A test", trainer._run_step if compile else None)
    text = open(page).read()
    assert "<polyline" in text and "Where the time went" in text and ("<iframe" in text) == compile


def test_accumulated_gradients_are_those_of_the_whole_batch():
    def parameters(batch_size, accumulate):
        td.manual_seed(0)
        model = nn.Linear(4, 2)
        loader = td.data.DataLoader(data(64), batch_size=batch_size)
        trainer = Trainer(
            model,
            td.optim.SGD(model.parameters(), lr=0.1),
            nn.CrossEntropyLoss(),
            accumulate=accumulate,
            progress=False,
        )
        trainer.fit(loader, 2)
        assert trainer.step == 2
        return model.weight.detach().numpy()

    np.testing.assert_allclose(parameters(16, 4), parameters(64, 1), rtol=1e-5)


def test_a_run_that_is_resumed_ends_where_one_that_was_not_does(tmp_path):
    whole, loader = make()
    whole.fit(loader, 4)
    first, loader = make(tmp_path)
    first.fit(loader, 2)
    second, loader = make(tmp_path)
    history = second.fit(loader, 4)
    assert [e["epoch"] for e in history.epochs] == [1, 2, 3, 4]
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    assert main(["view", str(tmp_path)]) == 0
    assert "<polyline" in (tmp_path / "page.html").read_text()


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


def test_early_stopping_and_losses_that_are_no_numbers():
    trainer, loader = make(callbacks=[EarlyStopping("train_loss", patience=2, least=10.0)])
    history = trainer.fit(loader, 9)
    assert len(history.epochs) == 3 and "not become better" in history.stopped
    trainer, loader = make()
    trainer.optimizer.param_groups[0]["lr"] = 1e38
    assert "the loss is" in trainer.fit(loader, 3).stopped
    with pytest.raises(KeyError, match="'nothing'"):
        trainer, loader = make(callbacks=[EarlyStopping("nothing")])
        trainer.fit(loader, 1)


def test_schedules_by_step_and_by_epoch():
    for schedule, expected in (("epoch", 0.25e-2), ("step", 1e-2 * 0.5**12)):
        trainer, loader = make()
        trainer.scheduler, trainer.schedule = td.optim.lr_scheduler.StepLR(trainer.optimizer, 1, 0.5), schedule
        trainer.fit(loader, 2)
        assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(expected)


# -- metrics


def test_metrics():
    scores = td.tensor([[0.1, 0.9, 0.0], [0.8, 0.1, 0.1], [0.2, 0.3, 0.5], [0.4, 0.3, 0.3]])
    classes = td.tensor([1, 0, 1, 2])

    def measure(metric, *batches):
        for batch in batches:
            metric.update(*batch)
        return metric.compute()

    assert measure(Accuracy(), (scores[:2], classes[:2]), (scores[2:], classes[2:])) == 0.5
    assert measure(Accuracy(top=2), (scores, classes)) == 0.75
    assert measure(F1("macro"), (scores, classes)) == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert measure(F1(), (td.tensor([1.0, -1, 2, 3]), td.tensor([1, 1, 0, 1]))) == pytest.approx(2 / 3)
    assert measure(AUC(), (td.tensor([0.1, 0.4, 0.35, 0.8]), td.tensor([0, 0, 1, 1]))) == pytest.approx(0.75)
    assert measure(AUC(), (td.tensor([0.5, 0.5]), td.tensor([0, 1]))) == pytest.approx(0.5)
    assert math.isnan(measure(AUC(), (td.tensor([0.5]), td.tensor([1]))))
    assert measure(Perplexity(), (td.zeros(5, 7), td.arange(5))) == pytest.approx(7, rel=1e-5)


# -- logs


def test_logs(tmp_path):
    log = CSVLog(tmp_path / "a.csv")
    log.write(1, {"loss": 2.0})
    log.write(2, {"loss": 1.0, "accuracy": 0.5})
    CSVLog(tmp_path / "a.csv").write(3, {"loss": 0.5, "accuracy": 0.75})
    assert (tmp_path / "a.csv").read_text().split() == ["step,loss,accuracy", "1,2.0,", "2,1.0,0.5", "3,0.5,0.75"]
    log = JSONLog(tmp_path / "a.jsonl")
    log.write(1, {"loss": 2.0})
    log.close()
    assert json.loads((tmp_path / "a.jsonl").read_text())["loss"] == 2.0


def test_event_files_have_the_form_that_tensorboard_reads(tmp_path):
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    log = TensorBoardLog(tmp_path / "events")
    log.write(7, {"loss": 0.5})
    log.close()
    (file,) = (tmp_path / "events").iterdir()
    content, records = file.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        records.append(content[12 : 12 + length])
        content = content[16 + length :]
    assert b"brain.Event:2" in records[0]
    assert b"loss" in records[1] and struct.pack("<f", 0.5) in records[1] and b"\x10\x07" in records[1]


# -- the command


def test_doctor_and_bench(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "self-test: passed" in out and re.search(r"CPU: .* threads", out)
    assert main(["bench", "--seconds", "0.01"]) == 0
    assert "training step" in capsys.readouterr().out


def test_train_by_function_and_by_file(tmp_path, capsys):
    (tmp_path / "project.py").write_text(
        "import tandem as td\nfrom tests.training.test_training import make as build\n\n"
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


def test_quickstart(tmp_path, capsys):
    pytest.importorskip("sklearn")
    from tandem.training.quickstart import main as quickstart

    accuracy = quickstart(epochs=3, out=str(tmp_path))
    assert accuracy > 0.9
    assert "<iframe" in (tmp_path / "page.html").read_text()
    assert "times as fast" in capsys.readouterr().out


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


def test_early_stopping_says_why(tmp_path, capsys):
    trainer, loader = make(tmp_path, callbacks=[EarlyStopping("train_loss", patience=2, least=10.0)])
    trainer.fit(loader, 9)
    told = "epoch 3 of 9: train_loss has not become better for 2 epochs"
    assert told in capsys.readouterr().err
    assert main(["view", str(tmp_path)]) == 0
    assert "stopped: train_loss has not become better" in (tmp_path / "page.html").read_text()


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
