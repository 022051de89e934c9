"""Softmax over many classes in clusters by frequency, and pools whose regions are drawn at random."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as T
from tandem.errors import ShapeError, ValueRangeError
from tandem.nn import functional as F
from tandem.nn.containers import ModuleList, Sequential
from tandem.nn.linear import Linear
from tandem.nn.module import Module


class _FractionalMaxPool(Module):
    def __init__(
        self, kernel_size, output_size=None, output_ratio=None, return_indices: bool = False, _random_samples=None
    ):
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueError("give either output_size or output_ratio")
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices, self._random_samples = return_indices, _random_samples

    def forward(self, input):
        return self._pool(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, output_size={self.output_size}, output_ratio={self.output_ratio}"


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest elements of regions of varying size, drawn at random. input: (N, C, H, W) or (C, H, W)

    >>> td.nn.FractionalMaxPool2d(2, output_size=3)(td.zeros(1, 1, 7, 7)).shape
    (1, 1, 3, 3)
    """

    _pool = staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest elements of regions of varying size, drawn at random. input: (N, C, D, H, W) or (C, D, H, W)"""

    _pool = staticmethod(F.fractional_max_pool3d)


class ASMoutput(NamedTuple):
    """What AdaptiveLogSoftmaxWithLoss gives."""

    output: object
    loss: object


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-softmax over classes that come in clusters by frequency (Grave et al., 2017): frequent classes are outputs of their own,
    rare ones share an output and are told apart by a smaller layer.

    input: (N, in_features) or (in_features), target: (N) or () -> (log probability of the target: like target, mean loss: ()).
    cutoffs: the first class of each cluster after the first; div_value: how much smaller each cluster's layer is.

    >>> layer = td.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[4, 10])
    >>> layer(td.zeros(3, 8), td.tensor([1, 5, 19])).output.shape
    (3,)
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs, div_value: float = 4.0, head_bias: bool = False, device=None,
                 dtype=None):  # fmt: skip
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs or cutoffs != sorted(set(cutoffs)) or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1:
            raise ValueRangeError(
                "AdaptiveLogSoftmaxWithLoss", f"cutoffs {cutoffs} must rise, from at least 1 to at most {n_classes - 1}"
            )
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*cutoffs, n_classes]
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden, size = int(in_features // div_value ** (i + 1)), self.cutoffs[i + 1] - self.cutoffs[i]
            options = {"bias": False, "device": device, "dtype": dtype}
            self.tail.append(Sequential(Linear(in_features, hidden, **options), Linear(hidden, size, **options)))

    def forward(self, input, target):
        single = target.ndim == 0
        if single:
            input, target = T.unsqueeze(input, 0), T.unsqueeze(target, 0)
        if input.ndim != 2 or target.ndim != 1 or input.shape[0] != target.shape[0]:
            raise ShapeError(
                "AdaptiveLogSoftmaxWithLoss",
                f"input is {input.shape} and target {target.shape}; they must be (N, D), (N)",
            )
        chosen = T.take_along_axis(self.log_prob(input), T.unsqueeze(target, 1), 1)
        output = T.squeeze(chosen, 1)
        return ASMoutput(T.squeeze(output, 0) if single else output, -T.mean(output))

    def log_prob(self, input):
        """Log probabilities of all classes: (N, n_classes)."""
        head = T.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, layers in enumerate(self.tail):
            parts.append(
                T.log_softmax(layers(input), 1) + head[:, self.shortlist_size + i : self.shortlist_size + i + 1]
            )
        return T.concat(parts, 1)

    def predict(self, input):
        """The most probable class of each row."""
        return T.argmax(self.log_prob(input), 1)
