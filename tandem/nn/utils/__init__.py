"""Tools around modules: clipping of gradients, vectors of parameters, parametrizations, padded sequences."""

from tandem.nn.utils import parametrizations, parametrize, rnn
from tandem.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from tandem.nn.utils.convert import parameters_to_vector, vector_to_parameters
from tandem.nn.utils.parametrizations import spectral_norm, weight_norm

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector", "parametrizations",
    "parametrize", "rnn", "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip
