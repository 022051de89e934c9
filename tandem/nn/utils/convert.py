"""All parameters as one vector, and back."""

from __future__ import annotations

from tandem.autograd.modes import no_grad
from tandem.ops import concat, reshape


def parameters_to_vector(parameters):
    """The elements of all parameters, one after the other.

    >>> td.nn.utils.parameters_to_vector(td.nn.Linear(2, 3).parameters()).shape
    (9,)
    """
    return concat([reshape(p, (-1,)) for p in parameters], 0)


def vector_to_parameters(vec, parameters):
    """Writes the elements of a vector into parameters, one after the other."""
    parameters = list(parameters)
    needed = sum(p.size for p in parameters)
    if vec.shape != (needed,):
        raise ValueError(f"the vector is {vec.shape}; the parameters take ({needed},)")
    start = 0
    with no_grad():
        for p in parameters:
            p.copy_(vec[start : start + p.size].reshape(p.shape))
            start += p.size
