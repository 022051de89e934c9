"""Train a two-layer network to tell three spiral arms apart, with nothing but tensors and gradients."""

import time

import numpy as np

import tandem as td

POINTS = 300  # per arm
HIDDEN = 64
STEPS = 400
LEARNING_RATE = 1.0


def spirals(points, arms=3):
    """Points (points * arms, 2) on noisy spiral arms, and the arm of each."""
    rng = np.random.default_rng(0)
    radius = np.linspace(0.05, 1.0, points)
    position, label = [], []
    for arm in range(arms):
        angle = np.linspace(0.0, 4.0, points) + arm * 2 * np.pi / arms + rng.normal(0.0, 0.15, points)
        position.append(np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1))
        label.append(np.full(points, arm))
    return np.concatenate(position).astype(np.float32), np.concatenate(label)


def main():
    td.manual_seed(0)
    position, label = spirals(POINTS)
    x, y = td.from_numpy(position), td.from_numpy(label)  # no copy: tensors over NumPy's memory

    w1 = td.randn(2, HIDDEN, requires_grad=True)
    b1 = td.zeros(HIDDEN, requires_grad=True)
    w2 = td.zeros(HIDDEN, 3, requires_grad=True)
    b2 = td.zeros(3, requires_grad=True)
    parameters = [w1, b1, w2, b2]

    started = time.perf_counter()
    for step in range(STEPS):
        logits = (x @ w1 + b1).relu() @ w2 + b2
        loss = td.cross_entropy(logits, y)
        loss.backward()
        with td.no_grad():
            for p in parameters:
                p -= LEARNING_RATE * p.grad
                p.grad = None
        if step % 50 == 0 or step == STEPS - 1:
            accuracy = (logits.argmax(axis=1) == y).to(td.float32).mean().item()
            print(f"step {step:3d}  loss {loss.item():.4f}  accuracy {accuracy:.3f}")
    print(f"{(time.perf_counter() - started) / STEPS * 1e6:.0f} µs a step")


if __name__ == "__main__":
    main()
