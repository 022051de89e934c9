"""Windows for spectra."""

import tandem as td
from tests.check import assert_close


def test_windows():
    import scipy.signal.windows as W

    for name, reference in (
        ("hann_window", W.hann),
        ("hamming_window", W.hamming),
        ("blackman_window", W.blackman),
        ("bartlett_window", W.bartlett),
    ):
        assert_close(getattr(td, name)(8, dtype=td.float64), reference(8, sym=False), atol=1e-12)
        assert_close(getattr(td, name)(7, False, dtype=td.float64), reference(7), atol=1e-12)
    assert_close(td.kaiser_window(8, beta=4.0, dtype=td.float64), W.kaiser(8, 4.0, sym=False))
    assert td.hann_window(0).shape == (0,) and td.hann_window(1).item() == 1.0
