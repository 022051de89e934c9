"""Transforms of functions under the names of torch.func: grad, vjp, jvp, vmap, jacrev, jacfwd, hessian, functional_call."""

from tandem.autograd.gradients import grad, value_and_grad, vjp
from tandem.nn.functional_call import functional_call, stack_module_state
from tandem.nn.normalization import _BatchNorm
from tandem.transforms import checkpoint, hessian, jacfwd, jacrev, jvp, linearize, vmap


def grad_and_value(func, argnums: int | tuple[int, ...] = 0, has_aux: bool = False):
    """A function that gives the gradient and func's value, in PyTorch's order; td.value_and_grad has JAX's.

    >>> td.func.grad_and_value(lambda x: x * x)(td.tensor(3.0))
    (tensor(6.), tensor(9.))
    """
    both = value_and_grad(func, argnums, has_aux)

    def wrapped(*args, **kwargs):
        value, gradient = both(*args, **kwargs)
        return gradient, value

    return wrapped


def replace_all_batch_norm_modules_(root):
    """Makes every batch normalisation in a module use the batch's own statistics and keep none, in place: then the module is a
    function, which vmap may run over an ensemble. Gives the module."""
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


__all__ = [
    "checkpoint", "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "value_and_grad", "vjp", "vmap",
]  # fmt: skip
