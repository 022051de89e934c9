"""Resuming after a crash: the run that was killed and started again ends with exactly the weights of the one that was not.

    python examples/resume_after_crash.py

The program starts itself as a child that trains a small CNN on handwritten digits (scikit-learn's, CC BY 4.0) and saves everything
every few steps in the background. It kills the child with SIGKILL in the middle, starts it again, and compares the result with a
run in peace: weights, optimiser, schedule, position in the data, augmentation and dropout are all where they were.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile

import tandem as td
from tandem import nn
from tandem.data import transforms
from tandem.nn import functional as F


class Augmented(td.data.Dataset):
    """Digits, each moved and erased a little; what happens to one depends on seed, epoch and index."""

    def __init__(self):
        self.images, self.labels = td.data.sets.digits("train").tensors
        self.augment = transforms.Compose([transforms.RandomCrop(8, padding=1), transforms.RandomErasing(0.3)])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.augment(self.images[index]), self.labels[index]


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


def train(folder: str, steps: int, save_every: int, workers: int):
    """Trains to `steps`, from the last checkpoint in the folder if there is one."""
    td.manual_seed(0)
    model = make_model()
    optimizer = td.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = td.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    loader = td.data.DataLoader(Augmented(), batch_size=64, shuffle=True, num_workers=workers)
    # One object knows everything that the run consists of. The random state is saved without asking.
    manager = td.checkpoint.CheckpointManager(
        folder, keep=2, asynchronous=True, model=model, optimizer=optimizer, schedule=schedule, loader=loader
    )
    step = manager.restore() or 0
    print(f"starts at step {step}", flush=True)
    while step < steps:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step % save_every == 0 or step == steps:
                manager.save(step)
                print(f"step {step} loss {float(loss.detach()):.4f}", flush=True)
            if step == steps:
                break
    manager.close()


def run(folder: str, options, kill_at: int | None = None) -> list[str]:
    """A child that trains; killed once it has passed a step, if asked."""
    arguments = [
        "--child",
        folder,
        "--steps",
        str(options.steps),
        "--save-every",
        str(options.save_every),
        "--workers",
        str(options.workers),
    ]
    lines = []
    with subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            lines.append(line.strip())
            print(f"  {lines[-1]}")
            if kill_at is not None and line.startswith("step") and int(line.split()[1]) >= kill_at:
                os.kill(child.pid, signal.SIGKILL)
                print("  killed")
                return lines
    if child.returncode:
        raise SystemExit(f"the child ended with {child.returncode}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--child", help="for the program itself: train here")
    options = parser.parse_args()
    if options.child:
        train(options.child, options.steps, options.save_every, options.workers)
        return
    with tempfile.TemporaryDirectory() as folder:
        peaceful, crashed = os.path.join(folder, "peaceful"), os.path.join(folder, "crashed")
        print("in peace:")
        run(peaceful, options)
        # After the second save has begun, the first one is whole: saves are written in the background, one after the other.
        kill_at = random.randrange(2 * options.save_every, options.steps - 2 * options.save_every)
        print(f"killed at step {kill_at} or soon after:")
        run(crashed, options, kill_at)
        print("and again:")
        run(crashed, options)
        name = f"step-{options.steps:08d}.safetensors"
        first, second = td.load(os.path.join(peaceful, name)), td.load(os.path.join(crashed, name))
        same = all(
            a.tolist() == b.tolist() for a, b in zip(first["model"].values(), second["model"].values(), strict=True)
        )
        print("the weights are", "the same to the last bit" if same else "DIFFERENT")
        if not same:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
