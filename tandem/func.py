"""Transforms of functions under the names of torch.func: grad, vjp, jvp, vmap, jacrev, jacfwd, hessian, functional_call."""

from tandem.autograd.functional import grad, value_and_grad, vjp
from tandem.nn.functional_call import functional_call, stack_module_state
from tandem.transforms import checkpoint, hessian, jacfwd, jacrev, jvp, linearize, vmap

grad_and_value = value_and_grad

__all__ = [
    "checkpoint", "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "value_and_grad", "vjp", "vmap",
]  # fmt: skip
