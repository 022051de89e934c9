"""constant: values that a graph holds, with the classic rules for shapes."""

import math

import numpy as np

from tandem import _runtime, dtypes
from tandem.errors import ShapeError
from tandem.session.build import as_tensor, graph_of
from tandem.session.graph import SymbolicTensor, outside_graphs
from tandem.v1.wrap import in_graph, int32_if_whole


@in_graph
def constant(value, dtype=None, shape=None):
    """A fixed value. Python's integers are int32. With `shape`, its elements in that shape, the last one repeated as often as it
    takes to fill it.

    >>> tf = td.v1
    >>> tf.Session().run(tf.constant([1, 2, 3], shape=[2, 2])).tolist()
    [[1, 2], [3, 3]]
    """
    graph = graph_of(value)
    if isinstance(value, SymbolicTensor):  # convert_to_tensor gives what is a tensor already as it is
        return value
    dtype = dtype or int32_if_whole(value)
    if shape is None:
        return as_tensor(graph, value, dtype)
    shape = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    with outside_graphs():
        flat = np.asarray(value.numpy() if isinstance(value, _runtime.Tensor) else value).reshape(-1)
    count = math.prod(shape)
    if len(flat) > count or (count and not len(flat)):
        raise ShapeError(
            "constant",
            f"{len(flat)} values for shape {shape}, which has {count}; there may be fewer values, of which the last is repeated, "
            "but not more, and not none",
            fix="give the shape of the values, or leave it out",
        )
    if dtype is None and not isinstance(value, (np.ndarray, np.generic, _runtime.Tensor)) and flat.dtype == np.float64:
        dtype = dtypes.default_float()
    filled = np.concatenate([flat, np.repeat(flat[-1:], count - len(flat))])
    return as_tensor(graph, filled.reshape(shape), dtype)


convert_to_tensor = constant
