"""td.quantize: a module with layers of fewer bits."""

from __future__ import annotations

import copy

import tandem as td
from tandem import nn
from tandem.errors import ValueRangeError
from tandem.quantization.integer import IntegerConv, IntegerLinear
from tandem.quantization.layers import FakeQuantized, QuantizedConv, QuantizedLinear

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def quantize(module, bits: int = 8, group: int | None = None, *, activations=None, skip=(), training: bool = False):
    """A copy of a module whose linear layers and convolutions have weights of fewer bits.

    bits: 8 or 4. group: weights of an output that share a scale; all of them by default. Smaller groups are more exact.
    activations: None: they stay floats, and so does the arithmetic. "dynamic": layers round them to 8 bits, by the largest of each
        row (of the batch in a convolution, of each group with 4 bits), and multiply whole numbers. An iterable of arguments: the
        same with steps that are fixed now, by the largest that each layer meets when the module runs on these.
    skip: names of layers that stay as they are ("lm_head", or the last part of a name).
    training: layers round their weights when they compute, but train them as floats; quantize(module) of the trained module makes
        them whole numbers, and its results stay what they were.

    >>> model = td.quantize(td.nn.Sequential(td.nn.Linear(64, 64), td.nn.ReLU(), td.nn.Linear(64, 8)), 4, group=32)
    >>> model[0]
    QuantizedLinear((64, 64), bits=4, 2 groups)
    """
    if training and activations is not None:
        raise ValueRangeError(
            "quantize", "training=True rounds weights alone; quantise activations of the trained module"
        )
    made = copy.deepcopy(module)
    if not training:
        for layer in list(made.modules()):
            if hasattr(layer, "untie"):
                layer.untie()
    steps = _steps_of(made, activations, bits)
    found = {name: layer for name, layer in made.named_modules() if _is_layer(layer)}
    wanted = {n: m for n, m in found.items() if not {n, n.rpartition(".")[2]} & set(skip)}
    if not wanted:
        raise ValueRangeError("quantize", f"the module has no linear layer or convolution besides {sorted(skip)}")
    inside = {id(m.layer) for m in wanted.values() if isinstance(m, FakeQuantized)}
    for name, layer in wanted.items():
        if id(layer) in inside:
            continue
        if isinstance(layer, FakeQuantized):
            new = _replacement(layer.layer, layer.bits, layer.group, training, steps, name)
        else:
            new = _replacement(layer, bits, group, training, steps, name)
        if not name:
            return new
        parent, _, last = name.rpartition(".")
        setattr(made.get_submodule(parent), last, new)
    return made


def _is_layer(module) -> bool:
    return isinstance(module, (nn.Linear, FakeQuantized, *_CONVOLUTIONS))


def _steps_of(module, activations, bits: int) -> dict[str, float] | None:
    """What one step of the activations of each layer is, by name; 0 where it is found as it runs. None: they stay floats."""
    if activations is None:
        return None
    layers = {name: layer for name, layer in module.named_modules() if _is_layer(layer)}
    if isinstance(activations, str):
        if activations != "dynamic":
            raise ValueRangeError(
                "quantize", f'activations is {activations!r}; it may be None, "dynamic" or arguments to run on'
            )
        return dict.fromkeys(layers, 0.0)
    if bits != 8:
        raise ValueRangeError("quantize", f"activations with fixed steps go with weights of 8 bits, not {bits}")
    largest = dict.fromkeys(layers, 0.0)

    def note(name: str):
        def hook(layer, inputs):
            largest[name] = max(largest[name], float(inputs[0].detach().abs().max()))

        return hook

    hooks = [layer.register_forward_pre_hook(note(name)) for name, layer in layers.items()]
    was_training = module.training
    module.eval()
    try:
        with td.no_grad():
            for args in activations:
                module(*(args if isinstance(args, (tuple, list)) else (args,)))
    finally:
        module.train(was_training)
        for hook in hooks:
            hook.remove()
    unseen = [name for name, most in largest.items() if most == 0 or most != most or most == float("inf")]
    if unseen:
        raise ValueRangeError(
            "quantize", f"the arguments brought no activations to {unseen}, or some that are not finite",
            fix="give arguments that reach every layer, or name these in skip",
        )  # fmt: skip
    return {name: most / 127 for name, most in largest.items()}


def _replacement(layer, bits: int, group: int | None, training: bool, steps: dict | None, name: str):
    if training:
        return FakeQuantized(layer, bits, group)
    if steps is not None:
        if isinstance(layer, nn.Linear):
            return IntegerLinear(layer, bits, group, steps[name])
        if bits == 8 and IntegerConv.fits(layer):
            return IntegerConv(layer, bits, group, steps[name])
    return (QuantizedLinear if isinstance(layer, nn.Linear) else QuantizedConv)(layer, bits, group)
