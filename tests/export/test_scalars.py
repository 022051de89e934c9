"""Formulas for files that other compilers read, computed by NumPy."""

import numpy as np
import pytest

from tandem import dtypes
from tandem.codegen.expr import topological
from tandem.export.scalars import FileScalars, native_functions

X = np.array([-60.0, -3.0, -1e-3, 0.0, 0.2, 1.0, 19.9, 20.1, 60.0, 709.9])


@native_functions
class Numpy(FileScalars):
    NATIVE = {name: name for name in ("exp", "expm1", "log", "log1p", "sin", "cos")} | {"pow": "power"}


COMPUTE = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "abs": np.abs, "neg": np.negative,
    "sqrt": np.sqrt, "where": np.where, "copysign": np.copysign, "lt": np.less, "eq": np.equal, "or": np.logical_or,
    "gt": np.greater, "fma": lambda a, b, c: a * b + c,
}  # fmt: skip


def evaluate(name: str, *arrays) -> np.ndarray:
    b = Numpy()
    leaves = [b.make("var", (), dtypes.float64, i) for i in range(len(arrays))]
    root = getattr(b, name)(*leaves)
    made = {leaf.id: a for leaf, a in zip(leaves, arrays, strict=True)}
    with np.errstate(all="ignore"):
        for e in topological([root]):
            if e.op == "const":
                made[e.id] = np.array(e.attr, np.uint64).view(np.float64)
            elif e.id not in made:
                compute = getattr(np, e.attr) if e.op == "native" else COMPUTE[e.op]
                made[e.id] = compute(*(made[a.id] for a in e.args))
    return made[root.id]


@pytest.mark.parametrize("name", ["sinh", "cosh", "cbrt", "tan", "exp2"])
def test_functions(name):
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(X)
    np.testing.assert_allclose(evaluate(name, X), expected, rtol=1e-14, atol=1e-300)


def test_logarithms_of_sums_take_infinities():
    a, b = np.array([np.inf, -np.inf, 3.0, -np.inf]), np.array([np.inf, -np.inf, 2.0, 1.0])
    np.testing.assert_allclose(evaluate("logaddexp", a, b), [np.inf, -np.inf, 3.3132616875182228, 1.0])
    np.testing.assert_allclose(evaluate("softplus", X), np.logaddexp(X, 0), rtol=1e-14)
