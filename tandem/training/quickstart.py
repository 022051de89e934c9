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

    os.makedirs(out, exist_ok=True)
    weights = os.path.join(out, "model.safetensors")
    td.save(compiled.model.state_dict(), weights)
    again = network()
    again.load_state_dict(td.load(weights))
    images, labels = data[1][:8]
    with td.no_grad():
        guesses = again.eval()(images).argmax(1)
    show(f"reloaded from {weights}: {labels.tolist()} are read as {guesses.tolist()}")

    page = write_page(
        os.path.join(out, "page.html"),
        {"eager": eager.history, "compiled": compiled.history},
        "Tandem quickstart: handwritten digits",
        compiled._run_step,
        f"<p>{accuracy:.1%} of {len(data[1])} digits that it has not seen; "
        f"{speed:,.0f} images/s compiled, {eager_speed:,.0f} eagerly.</p>",
    )
    show(f"loss curves, the dataflow graph and where the time went: {page}")
    return accuracy
