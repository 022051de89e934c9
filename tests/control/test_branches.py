"""cond and switch_case: eager = compiled, values and derivatives, errors."""

import numpy as np
import pytest

import tandem as td
from tests.control.agree import check

D = td.float64


def t(*values):
    return td.tensor(values, dtype=D)


def test_the_classic_example():
    def f(x, y, z):
        return td.cond(x < y, lambda: x + z, lambda: y * y)

    for x in (1.0, 3.0):
        check(f, td.tensor(x, dtype=D), td.tensor(2.0, dtype=D), td.tensor(5.0, dtype=D))


def test_branches_with_products_keep_what_gradients_need():
    def f(x, w):
        return td.cond(
            x.sum() > 0, lambda a, b: (td.exp(a @ b), a), lambda a, b: (a * 3 @ b.T, td.sin(a) * b.sum()), x, w
        )

    w = td.tensor(np.random.default_rng(0).standard_normal((3, 3)) * 0.4, dtype=D)
    check(f, t([1.0, 2.0, 3.0]), w)
    check(f, t([-1.0, 2.0, -3.0]), w)


def test_only_the_chosen_branch_counts():
    def f(x):
        return td.cond(x.sum() > 0, lambda: td.log(x), lambda: x * 0.5)

    check(f, t(1.0, 2.0))
    check(f, t(-1.0, -2.0))


def test_both_ways_are_one_program():
    f = td.compile(lambda x: td.cond(x > 0, lambda: x + 1, lambda: x - 1), whole=True)
    assert [float(f(td.tensor(v))) for v in (2.0, -2.0)] == [3, -3]
    assert f._programs.num_programs == 1


def test_a_python_bool_chooses_at_once():
    f = td.compile(lambda x, up: td.cond(up, lambda: x + 1, lambda: td.ones(3)), whole=True)
    assert f(td.tensor(1.0), True).shape == ()
    assert f(td.tensor(1.0), False).shape == (3,)


def test_switch_case():
    branches = [lambda x: x, lambda x: x * x, lambda x: td.sin(x)]
    f = td.compile(lambda i, x: td.switch_case(i, branches, x), whole=True)
    for i in (0, 1, 2, 7, -1):
        assert float(f(td.tensor(i), td.tensor(3.0))) == float(td.switch_case(td.tensor(i), branches, td.tensor(3.0)))
    assert f._programs.num_programs == 1
    for i in range(3):
        check(lambda x, i=i: td.switch_case((x.sum() * 0).astype(td.int64) + i, branches, x), t(0.5, 2.0))


def test_switch_case_by_key():
    f = lambda i: td.switch_case(
        i, {3: lambda: td.tensor(1.0), 5: lambda: td.tensor(2.0)}, default=lambda: td.tensor(0.0)
    )
    for i, expected in ((3, 1), (5, 2), (4, 0)):
        assert float(f(td.tensor(i))) == float(td.compile(f, whole=True)(td.tensor(i))) == expected


def test_numbers_among_the_arguments_stay_numbers():
    f = td.compile(lambda x, k: td.cond(x > 0, lambda v, n: v * n, lambda v, n: v - n, x, k), whole=True)
    assert float(f(td.tensor(2.0), 3)) == 6
    assert float(f(td.tensor(-2.0), 5.0)) == -7


def test_branches_must_fit():
    f = td.compile(lambda x: td.cond(x.sum() > 0, lambda: {"a": x}, lambda: {"a": x[:1]}))
    with pytest.raises(
        td.ShapeError, match=r"result\['a'\] is float32 \(1,\) from false_fn and float32 \(2,\) from true_fn"
    ):
        f(td.ones(2))
    with pytest.raises(td.DTypeError, match="all branches must give the same"):
        td.compile(lambda x: td.cond(x.sum() > 0, lambda: x, lambda: x > 0))(td.ones(2))


def test_a_predicate_has_one_element():
    for f in (
        lambda x: td.cond(x > 0, lambda: x, lambda: -x),
        td.compile(lambda x: td.cond(x > 0, lambda: x, lambda: -x)),
    ):
        with pytest.raises(td.ShapeError, match="one element"):
            f(td.ones(2))


def test_random_numbers_in_branches():
    f = lambda x: td.cond(x > 0, lambda: x + td.rand(3), lambda: td.randn(3) * x)
    for v in (1.0, -1.0):
        td.manual_seed(1)
        expected = f(td.tensor(v))
        td.manual_seed(1)
        np.testing.assert_allclose(td.compile(f, whole=True)(td.tensor(v)).numpy(), expected.numpy(), rtol=1e-6)
