"""Data and a model to train."""

import numpy as np

import tandem as td
from tandem import nn
from tandem.training import (
    Accuracy,
    Trainer,
)


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
