"""td.quantize: a module with layers of fewer bits."""

from __future__ import annotations

import copy

from tandem import nn
from tandem.errors import ValueRangeError
from tandem.quantization.layers import FakeQuantized, QuantizedConv, QuantizedLinear

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def quantize(module, bits: int = 8, group: int | None = None, *, skip=(), training: bool = False):
    """A copy of a module whose linear layers and convolutions have weights of fewer bits.

    bits: 8 or 4. group: weights of an output that share a scale; all of them by default. Smaller groups are more exact.
    skip: names of layers that stay as they are ("lm_head", or the last part of a name).
    training: layers round their weights when they compute, but train them as floats; quantize(module) of the trained module makes
        them whole numbers, and its results stay what they were.

    >>> model = td.quantize(td.nn.Sequential(td.nn.Linear(64, 64), td.nn.ReLU(), td.nn.Linear(64, 8)), 4, group=32)
    >>> model[0]
    QuantizedLinear((64, 64), bits=4, 2 groups)
    """
    made = copy.deepcopy(module)
    found = {name: layer for name, layer in made.named_modules() if _is_layer(layer)}
    wanted = {n: m for n, m in found.items() if not {n, n.rpartition(".")[2]} & set(skip)}
    if not wanted:
        raise ValueRangeError("quantize", f"the module has no linear layer or convolution besides {sorted(skip)}")
    inside = {id(m.layer) for m in wanted.values() if isinstance(m, FakeQuantized)}
    for name, layer in wanted.items():
        if id(layer) in inside:
            continue
        if isinstance(layer, FakeQuantized):
            new = _replacement(layer.layer, layer.bits, layer.group, training)
        else:
            new = _replacement(layer, bits, group, training)
        if not name:
            return new
        parent, _, last = name.rpartition(".")
        setattr(made.get_submodule(parent), last, new)
    return made


def _is_layer(module) -> bool:
    return isinstance(module, (nn.Linear, FakeQuantized, *_CONVOLUTIONS))


def _replacement(layer, bits: int, group: int | None, training: bool):
    if training:
        return FakeQuantized(layer, bits, group)
    return (QuantizedLinear if isinstance(layer, nn.Linear) else QuantizedConv)(layer, bits, group)
