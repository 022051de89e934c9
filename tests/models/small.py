"""Models at small size: the compiled training step is the eager one, and losses fall."""

import numpy as np

import tandem as td
from tandem.nn import functional as F


def count(model) -> int:
    return sum(p.numel() for p in model.parameters())


def whole(high, *shape):
    return td.tensor(np.random.default_rng(1).integers(0, high, shape))


def images(n, size, channels=3):
    return td.tensor(np.random.default_rng(2).normal(size=(n, channels, size, size)).astype(np.float32))


def classifier(model, x, classes=4):
    y = whole(classes, x.shape[0])
    return model, lambda: F.cross_entropy(model(x), y)


def language(model, tokens, predict):
    return model, lambda: F.cross_entropy(predict(tokens).reshape(-1, 11), tokens.reshape(-1))


def check_training(make):
    """`make` gives a model and a function of its loss; ten steps, eagerly and compiled."""

    def losses(compiled: bool) -> list[float]:
        td.manual_seed(0)
        model, loss_of = make()
        optimizer = td.optim.Adam(model.parameters(), lr=5e-4)  # larger steps amplify every bit in some of these

        def step():
            loss = loss_of()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        step = td.compile(step) if compiled else step
        return [step().item() for _ in range(10)]

    eager = losses(False)
    np.testing.assert_allclose(losses(True)[:4], eager[:4], rtol=2e-3, atol=1e-5)
    assert eager[-1] < eager[0]
