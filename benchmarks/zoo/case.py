"""What a model of the zoo gives."""

import os
from collections.abc import Callable
from dataclasses import dataclass

SCALE = int(os.environ.get("ZOO_SCALE", "1"))  # of batches
ZOO = {}


@dataclass
class Case:
    model: object  # a module, or several in a ModuleList
    inputs: tuple
    loss: Callable  # (model, *inputs) -> scalar
    forward: Callable | None = None  # (model, *inputs) -> results, for inference; model(inputs[0]) if None
    step: Callable | None = None  # (model, optimizers, *inputs) -> loss: a training step of its own
    optimizers: Callable | None = None  # model -> optimizers, for such a step
    images: bool = False  # whether channels-last memory may pay
    mixed: bool = True  # whether devices train it under autocast, which PyTorch refuses for some operators


def zoo(function):
    ZOO[function.__name__] = function
    return function
