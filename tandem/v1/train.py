"""train: optimisers under their classic names, over those of tandem.optim; Saver, Coordinator, QueueRunner."""

import contextlib
import json
import os
from typing import Any

import tandem as _td
from tandem import files as _files
from tandem import optim as _optim
from tandem.errors import UnsupportedError
from tandem.session import (  # noqa: F401
    Coordinator,
    QueueRunner,
    add_queue_runner,
    start_queue_runners,
)
from tandem.session import train as _train
from tandem.session.graph import SymbolicTensor, outside_graphs
from tandem.session.saver import Saver as _Saver
from tandem.v1.averages import ExponentialMovingAverage  # noqa: F401
from tandem.v1.building import gradients
from tandem.v1.left_out import refuse
from tandem.v1.wrap import in_graph, operand


class Saver(_Saver):
    """Saves and restores variables under their names: all of the graph's, or those of var_list. Of the files it has written it
    keeps the last max_to_keep; all of them, if that is 0 or None."""

    def __init__(self, var_list=None, reshape=False, sharded=False, max_to_keep=5):
        for name, value in (("reshape", reshape), ("sharded", sharded)):
            if value:
                raise UnsupportedError("Saver", f"{name} is {value!r}, which is not supported", fix="leave it out")
        super().__init__(var_list)
        self._most = max_to_keep
        self.last_checkpoints: list[str] = []

    def save(self, sess, save_path, global_step=None) -> str:
        """Writes the variables' values, to the path with the number of the step, if there is one; gives the path written."""
        if isinstance(global_step, SymbolicTensor):
            global_step = sess.run(global_step)
        path = super().save(sess, save_path, global_step)
        self.last_checkpoints = [*(p for p in self.last_checkpoints if p != path), path]
        latest = {"model_checkpoint_path": os.path.basename(path)}
        _files.write(os.path.join(os.path.dirname(path), _LATEST), json.dumps(latest))
        while self._most and len(self.last_checkpoints) > self._most:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.last_checkpoints[0])
            del self.last_checkpoints[0]
        return path


_LATEST = "checkpoint"  # in the folder of what a Saver writes: which file is the last


def latest_checkpoint(checkpoint_dir, latest_filename=None) -> str | None:
    """The path that a Saver has written last into this folder; None if there is none."""
    try:
        with open(os.path.join(checkpoint_dir, latest_filename or _LATEST)) as file:
            path = os.path.join(checkpoint_dir, json.load(file)["model_checkpoint_path"])
    except (FileNotFoundError, KeyError, ValueError):
        return None
    return path if os.path.exists(path) else None


def __getattr__(name) -> Any:
    if name in ("ClusterSpec", "Server", "replica_device_setter"):  # heavy: many programs need none of it
        from tandem.distributed import cluster

        return getattr(cluster, name)
    if name == "SyncReplicasOptimizer":
        from tandem.v1.sync_replicas import SyncReplicasOptimizer

        return SyncReplicasOptimizer
    raise refuse(__name__, name)


@in_graph
def exponential_decay(learning_rate, global_step, decay_steps, decay_rate, staircase=False):
    """learning_rate * decay_rate ** (global_step / decay_steps), with whole powers only if it goes down in stairs."""
    power = _td.divide(operand(global_step).astype(_td.float32), decay_steps)
    return learning_rate * _td.power(float(decay_rate), _td.floor(power) if staircase else power)


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
