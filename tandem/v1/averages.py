"""train.ExponentialMovingAverage: shadows of variables that follow them slowly."""

import tandem as _td
from tandem.errors import ValueRangeError
from tandem.v1.building import group
from tandem.v1.variables import Variable, trainable_variables
from tandem.v1.wrap import operand

__all__ = ["ExponentialMovingAverage"]


class ExponentialMovingAverage:
    """Each run of what apply() gives moves shadow variables: decay * shadow + (1 - decay) * variable. With num_updates the decay
    is at most (1 + num_updates) / (10 + num_updates), so that the first values count little."""

    def __init__(self, decay, num_updates=None, zero_debias=False, name="ExponentialMovingAverage"):
        if zero_debias:
            raise ValueRangeError("ExponentialMovingAverage", "zero_debias=True is not offered", fix="give num_updates")
        self._decay, self._num_updates, self._name = decay, num_updates, name
        self._shadows: dict = {}

    def apply(self, var_list=None):
        """An operation that moves the shadows of these variables, all trainable ones by default."""
        chosen = trainable_variables() if var_list is None else list(var_list)
        for v in chosen:
            if v not in self._shadows:
                name = f"{v.node.name}/{self._name}"
                self._shadows[v] = Variable(v.initialized_value(), trainable=False, name=name)
        decay = self._decay
        if self._num_updates is not None:
            count = operand(self._num_updates).astype(_td.float32)
            decay = _td.minimum(decay, (1.0 + count) / (10.0 + count))
        moved = [s.assign(s - (s - v) * (1 - decay)) for v, s in ((v, self._shadows[v]) for v in chosen)]
        return group(*moved)

    def average(self, var):
        """The shadow of a variable, or None if there is none."""
        return self._shadows.get(var)

    def average_name(self, var) -> str:
        return f"{var.node.name}/{self._name}"

    def variables_to_restore(self, moving_avg_variables=None) -> dict:
        """{name: variable} for a Saver that puts the averages of saved files into the variables."""
        return {self.average_name(v): v for v in self._shadows}
