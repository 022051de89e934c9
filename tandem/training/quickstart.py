"""Train a small CNN on real handwritten digits, eagerly and compiled; save, reload, predict; write a page about it.

    tandem quickstart [--epochs N] [--out FOLDER]

Takes under a minute on two cores. Needs scikit-learn, whose digits (8 x 8 pixels) it uses.
"""

from __future__ import annotations

import os
import time

import tandem as td
from tandem import nn
from tandem.training import Accuracy, Trainer, write_page
from tandem.training.page import pictures


def network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 10),
    )  # fmt: skip


def train(compiled: bool, epochs: int, data):
    """A trained model, its trainer, and how many images a second it learnt from."""
    td.manual_seed(0)
    train_set, test_set = data
    loader = td.data.DataLoader(train_set, batch_size=64, shuffle=True, seed=0)
    model = network()
    optimizer = td.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = td.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=epochs * len(loader))
    trainer = Trainer(
        model, optimizer, nn.CrossEntropyLoss(label_smoothing=0.05), metrics={"accuracy": Accuracy()}, compile=compiled,
        scheduler=schedule, schedule="step",
    )  # fmt: skip
    started = time.perf_counter()
    trainer.fit(loader, epochs, validation=td.data.DataLoader(test_set, batch_size=512))
    seconds = time.perf_counter() - started
    steps = sorted(s["seconds"] for s in trainer.history.steps)
    return trainer, 64 / steps[len(steps) // 2], seconds


def distort(images, light, contrast, noise):
    """Copies as bad light and a bad camera would make them: small operators, which a program joins into one pass over memory."""
    x = (images - 0.5) * contrast + 0.5 + light
    x = td.clip(x + 0.2 * noise, 0.0, 1.0)
    x = x + 0.25 * (x * x - x * x * x)
    return td.where(x < 0.05, 0.0, x) * 2 - 1


def time_distortion(images, copies: int = 8):
    """Seconds that distorted copies of all images take, eagerly and compiled; the least of several rounds."""
    many = images.expand(copies, *images.shape).reshape(-1, *images.shape[1:])
    shape = (many.shape[0], 1, 1, 1)
    settings = 0.4 * td.rand(shape) - 0.2, 0.6 * td.rand(shape) + 0.7, td.randn(many.shape)

    def least(function) -> float:
        times = []
        for _ in range(12):
            started = time.perf_counter()
            function(many, *settings).sum().item()
            times.append(time.perf_counter() - started)
        return min(times)

    with td.no_grad():
        return least(distort), least(td.compile(distort)), len(many)


def main(epochs: int = 15, out: str = "quickstart-run", show=print):
    data = td.data.sets.digits("train"), td.data.sets.digits("test")
    show(f"{len(data[0])} digits to learn from, {len(data[1])} to be tested with")
    show("eagerly, line by line:")
    eager, eager_speed, eager_seconds = train(False, epochs, data)
    show("compiled, each step one program:")
    compiled, speed, seconds = train(True, epochs, data)
    accuracy = compiled.history.epochs[-1]["validation_accuracy"]
    show(
        f"eager    {eager_speed:8,.0f} images/s  {eager_seconds:5.1f} s  {eager.history.epochs[-1]['validation_accuracy']:.1%}"
    )
    show(
        f"compiled {speed:8,.0f} images/s  {seconds:5.1f} s  {accuracy:.1%}  ({speed / eager_speed:.1f} times as fast)"
    )

    slow, quick, count = time_distortion(data[0][:][0])
    show(
        f"{count:,} distorted copies: {1e3 * slow:.1f} ms eagerly, {1e3 * quick:.1f} ms compiled ({slow / quick:.1f} times as fast)"
    )

    os.makedirs(out, exist_ok=True)
    weights = os.path.join(out, "model.safetensors")
    td.save(compiled.model.state_dict(), weights)
    again = network()
    again.load_state_dict(td.load(weights))
    images, labels = data[1][:]
    with td.no_grad():
        guesses = again.eval()(images).argmax(1)
    show(f"reloaded from {weights}: {labels[:8].tolist()} are read as {guesses[:8].tolist()}")
    wrong = td.nonzero(guesses != labels)[0].tolist()
    chosen = [*[i for i in range(len(labels)) if i not in wrong][: 24 - len(wrong[:8])], *wrong[:8]]

    page = write_page(
        os.path.join(out, "page.html"),
        {"eager": eager.history, "compiled": compiled.history},
        "Tandem quickstart: handwritten digits",
        compiled._run_step,
        f"<p>{accuracy:.1%} of {len(data[1])} digits that it has not seen.</p>"
        "<h2>Eagerly and compiled</h2><div class=scroll><table><tr><th>what</th><th>eagerly</th><th>compiled</th><th></th></tr>"
        + _row("training, images/s", f"{eager_speed:,.0f}", f"{speed:,.0f}", speed / eager_speed)
        + _row(f"{count:,} distorted copies", f"{1e3 * slow:.1f} ms", f"{1e3 * quick:.1f} ms", slow / quick)
        + "</table></div><p>Convolutions take as long either way, and eager calls cost little: training gains little. A chain of "
        "cheap operators gains most, for a program goes through memory once; one whose time goes into arithmetic gains little.</p>"
        "<h2>Some digits, and what they are read as</h2>"
        + pictures(images[chosen, 0], labels[chosen].tolist(), guesses[chosen].tolist()),
    )
    show(f"loss curves, the dataflow graph and where the time went: {page}")
    return accuracy


def _row(what: str, eager: str, compiled: str, gain: float) -> str:
    return f"<tr><td>{what}</td><td>{eager}</td><td>{compiled}</td><td>{gain:.1f} times as fast</td></tr>"
