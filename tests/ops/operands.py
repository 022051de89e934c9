"""What the tests of this folder share."""

import numpy as np


def numpy_pad(x, pad, mode="constant", value=0):
    """F.pad's order of widths in np.pad's words; negative widths crop first."""
    widths = [(0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        widths[-1 - i] = (pad[2 * i], pad[2 * i + 1])
    x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, widths, strict=True))]
    widths = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant":
        return np.pad(x, widths, constant_values=value)
    return np.pad(x, widths, mode={"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])


def distinct(shape, seed=0):
    """Values far enough apart that no small step changes their order."""
    n = int(np.prod(shape))
    return (np.random.default_rng(seed).permutation(n).reshape(shape) / 7.0 - 1).astype(np.float64)
