"""train: optimisers under their classic names, over those of tandem.optim; Saver, Coordinator, QueueRunner."""

import tandem as _td
from tandem import optim as _optim
from tandem.session import (  # noqa: F401
    Coordinator,
    QueueRunner,
    Saver,
    add_queue_runner,
    gradients,
    start_queue_runners,
)
from tandem.session import train as _train
from tandem.session.graph import outside_graphs


class Optimizer:
    """Base: `make(params)` gives the optimiser that does the work."""

    def __init__(self, make):
        with outside_graphs():
            self._optimizer = make([_td.zeros(1)])

    def minimize(self, loss, global_step=None, var_list=None, name=None):
        """An operation that makes one step down the gradient of the loss."""
        return _train.minimize(self._optimizer, loss, var_list, global_step, name)

    def compute_gradients(self, loss, var_list=None):
        """(gradient, variable) pairs."""
        variables = loss.graph.trainable_variables if var_list is None else list(var_list)
        return list(zip(gradients(loss, variables), variables, strict=True))

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """An operation that makes one step with these gradients."""
        return _train.apply_gradients(self._optimizer, grads_and_vars, global_step, name)


class GradientDescentOptimizer(Optimizer):
    def __init__(self, learning_rate, use_locking=False, name=None):
        super().__init__(lambda params: _optim.SGD(params, lr=learning_rate))


class MomentumOptimizer(Optimizer):
    def __init__(self, learning_rate, momentum, use_locking=False, name=None, use_nesterov=False):
        super().__init__(lambda params: _optim.SGD(params, lr=learning_rate, momentum=momentum, nesterov=use_nesterov))


class AdagradOptimizer(Optimizer):
    def __init__(self, learning_rate, initial_accumulator_value=0.1, use_locking=False, name=None):
        super().__init__(
            lambda params: _optim.Adagrad(params, lr=learning_rate, initial_accumulator_value=initial_accumulator_value)
        )


class AdadeltaOptimizer(Optimizer):
    def __init__(self, learning_rate=0.001, rho=0.95, epsilon=1e-8, use_locking=False, name=None):
        super().__init__(lambda params: _optim.Adadelta(params, lr=learning_rate, rho=rho, eps=epsilon))


class RMSPropOptimizer(Optimizer):
    def __init__(self, learning_rate, decay=0.9, momentum=0.0, epsilon=1e-10, use_locking=False, name=None):
        super().__init__(
            lambda params: _optim.RMSprop(params, lr=learning_rate, alpha=decay, momentum=momentum, eps=epsilon)
        )


class AdamOptimizer(Optimizer):
    def __init__(self, learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, use_locking=False, name=None):
        super().__init__(lambda params: _optim.Adam(params, lr=learning_rate, betas=(beta1, beta2), eps=epsilon))
