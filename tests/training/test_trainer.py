"""The trainer."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.cli import main
from tandem.training import (
    EarlyStopping,
    Trainer,
    write_page,
)
from tests.training.runs import data, make


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


def test_early_stopping_says_why(tmp_path, capsys):
    trainer, loader = make(tmp_path, callbacks=[EarlyStopping("train_loss", patience=2, least=10.0)])
    trainer.fit(loader, 9)
    told = "epoch 3 of 9: train_loss has not become better for 2 epochs"
    assert told in capsys.readouterr().err
    assert main(["view", str(tmp_path)]) == 0
    assert "stopped: train_loss has not become better" in (tmp_path / "page.html").read_text()
