"""Tools around modules: clipping of gradients, vectors of parameters, parametrizations, pruning, fusion, padded sequences."""

from tandem.nn.module import Module
from tandem.nn.older_names import older_name
from tandem.nn.utils import parametrizations, parametrize, prune, rnn, stateless
from tandem.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from tandem.nn.utils.convert import parameters_to_vector, vector_to_parameters
from tandem.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from tandem.nn.utils.weight_norm import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm

clip_grad_norm = older_name(clip_grad_norm_)


def skip_init(module_cls, *args, **kwargs):
    """module_cls(*args, **kwargs), for when its parameters are loaded next; here they are initialised all the same."""
    if not issubclass(module_cls, Module):
        raise TypeError(f"skip_init takes a class of modules, not {module_cls!r}")
    return module_cls(*args, **kwargs)


__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval", "fuse_conv_bn_weights",
    "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm", "parameters_to_vector", "parametrizations", "parametrize",
    "prune", "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm", "stateless",
    "vector_to_parameters", "weight_norm",
]  # fmt: skip
