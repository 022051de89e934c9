"""Elementwise operators for tests of the code generator."""

from tandem.graph.ir import Value
from tandem.ops.create import Constant
from tandem.ops.define import Elementwise
from tandem.ops.movement import Expand
from tandem.ops.reduce import Reduce


class Test(Elementwise):
    """fn(b, *scalars) as an operator."""

    name = "test"
    takes_complex = True
    _fields = ("fn", "dtype")

    def result_dtype(self, *inputs):
        return self.dtype or inputs[0]

    def body(self, b, *scalars):
        return self.fn(b, *scalars)


def named(name, fn, dtype=None):
    op = Test(fn, dtype)
    object.__setattr__(op, "name", name)
    return op


def binary(name, fn):
    op = named(name, fn)

    def call(x: Value, y) -> Value:
        if not isinstance(y, Value):
            y = Constant(y, x.dtype)()
        for a, c in zip(x.shape, y.shape):
            assert not y.shape or a is c or a == c
        return op(x, y)

    return call


add = binary("add", lambda b, x, y: x + y)
sub = binary("sub", lambda b, x, y: x - y)
mul = binary("mul", lambda b, x, y: x * y)
div = binary("div", lambda b, x, y: x / y)
exp = named("exp", lambda b, x: b.exp(x))
sqrt = named("sqrt", lambda b, x: b.sqrt(x))
neg = named("neg", lambda b, x: -x)


def cast(x, dtype):
    return named("cast", lambda b, x: b.cast(x, dtype), dtype)(x)


def bcast(x, shape):
    return Expand(tuple(shape))(x)


def reduce(kind, x, axes, dtype=None):
    if kind in ("argmax", "argmin", "any", "all"):
        x = named("same", lambda b, x: x)(
            x
        )  # of what comes from memory, routines of the library make these (cpu/compose.py)
    return Reduce(kind, axes, dtype)(x)


def softmax(x, axis=-1):
    axis %= x.ndim
    top = reduce("max", x, (axis,))
    e = exp(sub(x, bcast(top, x.shape)))
    return div(e, bcast(reduce("sum", e, (axis,)), x.shape))


def layer_norm(x, eps=1e-5):
    n = x.shape[-1]
    from tandem.ops.create import Size

    count = Size(n, x.dtype)()
    mean = div(reduce("sum", x, (x.ndim - 1,)), count)
    centred = sub(x, bcast(mean, x.shape))
    variance = div(reduce("sum", mul(centred, centred), (x.ndim - 1,)), count)
    scale = sqrt(add(variance, eps))
    return div(centred, bcast(scale, x.shape))
