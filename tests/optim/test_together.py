"""Updates of several parameters in one call."""

from __future__ import annotations

import numpy as np

import tandem as td


def test_updates_of_several_parameters_in_one_call_are_those_of_each():
    from tandem.optim.sgd import sgd_momentum
    from tandem.optim.together import _many

    rng = np.random.default_rng(0)
    make = lambda: [td.tensor(rng.normal(size=n).astype(np.float32)) for n in (3, 5, 4)]
    params, buffers, grads = make(), make(), make()
    expected = [(p.clone(), b.clone()) for p, b in zip(params, buffers, strict=True)]
    settings = (0.1, 0.01, 0.9, 0.0, True, False)
    for (p, b), g in zip(expected, grads, strict=True):
        sgd_momentum(p, b, g, *settings)
    _many(sgd_momentum, 3)(*params, *buffers, *grads, *settings)
    for (p, b), q, c in zip(expected, params, buffers, strict=True):
        assert p.tolist() == q.tolist() and b.tolist() == c.tolist()
