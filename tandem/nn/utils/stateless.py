"""functional_call under PyTorch's older path; td.func has it too."""

from __future__ import annotations

from tandem.nn.functional_call import functional_call as _call
from tandem.nn.functional_call import replaced as _replaced


def functional_call(
    module, parameters_and_buffers, args=(), kwargs=None, *, tie_weights: bool = True, strict: bool = False
):
    """module(*args, **kwargs) with other tensors in place of its parameters and buffers, which are given by name.

    tie_weights: what is given for one of several names of a tensor counts for all of them.

    >>> layer = td.nn.Linear(2, 1, bias=False)
    >>> td.nn.utils.stateless.functional_call(layer, {"weight": td.ones(1, 2)}, (td.tensor([3.0, 4.0]),))
    tensor([7.])
    """
    return _call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


def _reparametrize_module(
    module, parameters_and_buffers, tie_weights: bool = False, strict: bool = False, stack_weights: bool = False
):
    """with _reparametrize_module(module, tensors): the module has them in place of its own, as in functional_call."""
    return _replaced(module, parameters_and_buffers, tie_weights, strict)
