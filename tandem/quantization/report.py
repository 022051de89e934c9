"""What fewer bits cost in accuracy and save in memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import tandem as td


class Report(NamedTuple):
    """error: of results, relative to their size (root of mean squares); agreement: share of rows whose largest result is the same;
    layers: the same error of each layer's results, by name."""

    error: float
    agreement: float
    bytes_before: int
    bytes_after: int
    layers: dict[str, float]

    def __str__(self):
        lines = [
            f"error {self.error:.2%}, agreement {self.agreement:.1%}, "
            f"weights {self.bytes_before} -> {self.bytes_after} bytes ({self.bytes_before / self.bytes_after:.1f}x smaller)"
        ]
        worst = sorted(self.layers.items(), key=lambda pair: -pair[1])
        return "\n".join([*lines, *(f"  {name}: {error:.2%}" for name, error in worst)])


def compare(module, quantized, *args) -> Report:
    """Runs both on the same arguments and compares results, the layers that were quantised, and sizes.

    >>> model = td.nn.Sequential(td.nn.Linear(16, 16), td.nn.ReLU(), td.nn.Linear(16, 4))
    >>> report = td.quantization.compare(model, td.quantize(model), td.randn(8, 16))
    >>> report.error < 0.05, report.bytes_before > 2 * report.bytes_after, sorted(report.layers)
    (True, True, ['0', '2'])
    """
    names = [n for n, m in quantized.named_modules() if hasattr(m, "dequantized") or hasattr(m, "rounded")]
    expected, inner = _run(module, args, names)
    got, changed = _run(quantized, args, names)
    same = np.mean(got.reshape(-1, got.shape[-1]).argmax(-1) == expected.reshape(-1, expected.shape[-1]).argmax(-1))
    layers = {n: _error(inner[n], changed[n]) for n in names}
    return Report(_error(expected, got), float(same), _bytes(module), _bytes(quantized), layers)


def _run(module, args, names: list) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    found: dict[str, np.ndarray] = {}
    hooks = []
    for name in names:
        layer = module.get_submodule(name) if name else module
        hooks.append(layer.register_forward_hook(lambda m, i, out, name=name: found.__setitem__(name, out.numpy())))
    try:
        with td.no_grad():
            result = module(*args)
    finally:
        for hook in hooks:
            hook.remove()
    return td.tree.leaves(result)[0].numpy(), found


def _error(expected: np.ndarray, got: np.ndarray) -> float:
    size = np.sqrt(np.mean(np.square(expected, dtype=np.float64)))
    return float(np.sqrt(np.mean(np.square(got.astype(np.float64) - expected))) / size) if size else 0.0


def _bytes(module) -> int:
    return sum(t.numel() * t.dtype.itemsize for t in [*module.parameters(), *module.buffers()])
