"""Windows of td.signal against SciPy's."""

import numpy as np
import pytest
from scipy.signal import windows as reference

import tandem as td

W = td.signal.windows
CASES = {
    "hamming": ({}, {}),
    "hann": ({}, {}),
    "blackman": ({}, {}),
    "nuttall": ({}, {}),
    "bartlett": ({}, {}),
    "cosine": ({}, {}),
    "gaussian": ({"std": 3.0}, {"std": 3.0}),
    "exponential": ({"tau": 2.0}, {"tau": 2.0}),
    "kaiser": ({"beta": 8.0}, {"beta": 8.0}),
    "general_hamming": ({"alpha": 0.7}, {"alpha": 0.7}),
    "general_cosine": ({"a": [0.4, 0.5, 0.1]}, {"a": [0.4, 0.5, 0.1]}),
}


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_windows(name, sym):
    ours, theirs = CASES[name]
    for n in (1, 7, 16):
        made = getattr(W, name)(n, **ours, sym=sym, dtype=td.float64)
        np.testing.assert_allclose(made.numpy(), getattr(reference, name)(n, **theirs, sym=sym), rtol=1e-7, atol=1e-12)


def test_a_window_of_less_than_nothing_is_refused():
    assert W.hann(0).shape == (0,)
    with pytest.raises(ValueError, match="-1"):
        W.hann(-1)
