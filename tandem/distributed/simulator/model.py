"""Transformers in numbers: operations, bytes and parameters of a layer, from its sizes."""

from __future__ import annotations

import dataclasses

BYTES = 2  # of a number in bfloat16 or float16
STATE = 16  # bytes a parameter: weight and gradient in 16 bits, weight and two moments of Adam in 32


@dataclasses.dataclass(frozen=True)
class Transformer:
    """A decoder as GPT's.

    >>> gpt3 = td.distributed.simulator.Transformer(layers=96, width=12288, heads=96)
    >>> f"{gpt3.parameters / 1e9:.1f} billion"
    '174.6 billion'
    """

    layers: int
    width: int
    heads: int
    vocabulary: int = 51200
    context: int = 2048

    @property
    def layer_parameters(self) -> int:
        return 12 * self.width**2 + 13 * self.width

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters + (self.vocabulary + self.context) * self.width

    def layer_operations(self, rows: int) -> float:
        """Of one layer's matrix products, forward, for so many sequences."""
        tokens = rows * self.context
        return 24.0 * tokens * self.width**2 + 4.0 * tokens * self.context * self.width

    def head_operations(self, rows: int) -> float:
        """Of the scores of all words, forward."""
        return 2.0 * rows * self.context * self.width * self.vocabulary

    def step_operations(self, rows: int) -> float:
        """Of a training step's matrix products, without anything computed again: what the model itself needs."""
        return 3.0 * (self.layers * self.layer_operations(rows) + self.head_operations(rows))

    def boundary(self, rows: int) -> int:
        """Bytes that go from layer to layer."""
        return rows * self.context * self.width * BYTES

    def layer_traffic(self, rows: int, tensor: int) -> float:
        """Bytes that one layer's operators other than matrix products read and write, on one of `tensor` devices that share it.

        Norms, residuals and dropout pass over whole activations on each device; activation functions over its part of four times
        the width; softmax, mask and dropout of scores over its heads.
        """
        whole = 14 * self.boundary(rows)
        wide = 4 * 4 * self.boundary(rows) / tensor
        scores = 6 * rows * self.heads * self.context**2 * BYTES / tensor
        return whole + wide + scores

    def activations(self, rows: int, tensor: int, recompute: bool) -> float:
        """Bytes that one layer keeps for backward. recompute: it keeps what comes in only."""
        if recompute:
            return self.boundary(rows)
        # In units of tokens x width bytes, as the parts of a layer save them: 10 whole, 24 divided, and scores.
        unit = rows * self.context * self.width
        return unit * (10 + 24 / tensor) + 5 * rows * self.heads * self.context**2 / tensor
