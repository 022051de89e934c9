"""Transforms of functions: they take a function and give one. grad and its relatives live in tandem.autograd.gradients."""

from tandem import aliases
from tandem.transforms import functional, library_rules  # the second registers rules of batching
from tandem.transforms.checkpoint import checkpoint
from tandem.transforms.forward import jvp, linearize
from tandem.transforms.jacobian import hessian, jacfwd, jacrev
from tandem.transforms.vectorize import vmap

__all__ = ["checkpoint", "functional", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vmap"]

aliases.also_at("tandem.autograd.functional", functional)  # PyTorch's path to it
