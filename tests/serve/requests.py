"""A model behind an application, and what it is asked."""

from __future__ import annotations

import numpy as np

from tandem.serve import App, Limits, ModelStore


def served(model=None, **limits) -> App:
    store = ModelStore(Limits(**limits))
    if model is not None:
        store.add("toy", model)
    return App(store)


def question(x, scale) -> dict:
    x, scale = np.asarray(x, np.float32), np.asarray(scale, np.float32)
    return {"inputs": [
        {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.reshape(-1).tolist()},
        {"name": "scale", "shape": list(scale.shape), "datatype": "FP32", "data": scale.tolist()},
    ]}  # fmt: skip
