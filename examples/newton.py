"""Newton's method that stops when it has converged, differentiated: how the roots of cubics move with their coefficients.

The loop's length depends on the data. Its gradient is compared with what the implicit function theorem says.
"""

import tandem as td

TOLERANCE = 1e-12


def roots(a, b):
    """A root of x^3 + a x - b for each pair, by Newton's method."""

    def improve(x, change):
        new = x - (x**3 + a * x - b) / (3 * x * x + a)
        return new, (new - x).abs().max()

    start = (td.ones_like(a), td.tensor(1.0, dtype=a.dtype))
    return td.while_loop(lambda x, change: change > TOLERANCE, improve, start, maximum=100)[0]


@td.compile(whole=True)
def roots_and_slopes(a, b):
    slope_a, slope_b = td.grad(lambda a, b: roots(a, b).sum(), argnums=(0, 1))(a, b)
    return roots(a, b), slope_a, slope_b


def main():
    a = td.tensor([1.0, 2.0, 5.0], dtype=td.float64)
    b = td.tensor([2.0, 9.0, 0.5], dtype=td.float64)
    x, slope_a, slope_b = roots_and_slopes(a, b)
    print("roots   ", x.tolist())
    print("dx/da   ", slope_a.tolist(), "expected", (-x / (3 * x * x + a)).tolist())
    print("dx/db   ", slope_b.tolist(), "expected", (1 / (3 * x * x + a)).tolist())


if __name__ == "__main__":
    main()
