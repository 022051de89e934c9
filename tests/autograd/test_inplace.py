"""In-place operators and views: what the tape knows afterwards. Gradients are checked against finite differences."""

import inspect

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients

X = np.array([1.5, -0.5, 2.0, 0.7])
M = np.arange(1.0, 13.0).reshape(3, 4) / 5


def line():
    return inspect.currentframe().f_back.f_lineno


def gradients(fn, *arrays):
    check_gradients(fn, tuple(np.asarray(a, dtype=np.float64) for a in arrays))


# -- whole tensors


def test_in_place_on_a_result():
    def f(x):
        y = x * 2
        y *= y
        y += x
        return y.sin_()

    gradients(f, X)


def test_in_place_with_itself():
    def f(x):
        y = x * 1
        y *= y
        y -= y * 0.5
        return y

    gradients(f, X)


def test_copy_into_a_result():
    def f(x, z):
        y = x * 2
        y.copy_(z * 3)
        return y * x

    gradients(f, X, X + 1)


def test_copy_into_a_constant():
    def f(x):
        y = td.zeros(4, dtype=td.float64)
        y.copy_(x * x)
        assert y.requires_grad == (x.requires_grad and td.is_grad_enabled())
        return y * 3

    gradients(f, X)


def test_overwritten_by_a_constant():
    x = td.tensor(X, requires_grad=True)
    y = x * 2
    y.copy_(td.ones(4, dtype=td.float64))
    assert not y.requires_grad


def test_leaf():
    x = td.tensor(X, requires_grad=True)
    for write in (lambda: x.add_(1), lambda: x.__setitem__(0, 1.0), lambda: x[1:].mul_(2), lambda: x.copy_(0)):
        with pytest.raises(td.AutogradError, match="leaf"):
            write()
    assert x.tolist() == X.tolist()


def test_view_of_leaf_without_grad():
    x = td.tensor(X)
    x[0] = 5.0
    x[1:].add_(1)
    assert x.tolist() == [5, 0.5, 3, 1.7]


def test_leaf_that_becomes_a_result():
    """A buffer that does not require grad may take a recorded value: it is a result from then on."""
    buffer = td.zeros(4, dtype=td.float64)
    x = td.tensor(X, requires_grad=True)
    buffer += x * 2
    assert buffer.requires_grad and not buffer.is_leaf
    buffer.sum().backward()
    assert x.grad.tolist() == [2] * 4


# -- through views


def test_setitem():
    def f(x, z):
        y = x * 2
        y[1] = z[0]
        y[2:] = z[1:3] * 3
        return y * y

    gradients(f, X, X + 1)


def test_setitem_constant():
    def f(x):
        y = x * x
        y[0] = 0.0
        y[2:] = 3
        return y * x

    gradients(f, X)


def test_setitem_with_index_tensors_and_masks():
    def f(x, z):
        y = x * x
        y[td.tensor([0, 3])] = z[:2]
        y[td.tensor([False, True, False, False])] = z[2] * 2
        return y * 3

    gradients(f, X, X + 1)


def test_fill_rows_of_a_buffer():
    def f(x):
        out = td.zeros((3, 4), dtype=td.float64)
        for i in range(3):
            out[i] = x * (i + 1)
        return out * out

    gradients(f, X)


def test_recurrence_in_a_buffer():
    def f(x):
        out = td.zeros(5, dtype=td.float64)
        for i in range(4):
            out[i + 1] = out[i].clone() * 0.5 + x[i]
        return out * out

    gradients(f, X)


def test_operator_in_place_on_a_slice():
    def f(x, z):
        y = x * 1
        y[1:3] += z[:2]
        y[::2] *= 3
        y[-1:] -= y[:1]
        return y * y

    gradients(f, X, X + 1)


def test_in_place_through_a_chain_of_views():
    def f(x, z):
        y = x * 2
        y.T[1:3].reshape(2, 3)[0].mul_(z[:3])
        y.view(-1)[::5].add_(1.0)
        return y * y

    gradients(f, M, X)


def test_view_sees_a_write_to_its_base():
    def f(x, z):
        y = x * 2
        view = y[1:3]
        y.mul_(3)
        y[2] = z[0]
        return view * view

    gradients(f, X, X)


def test_base_sees_a_write_to_its_view():
    def f(x, z):
        y = x * 2
        view = y[1:3]
        view *= z[1:3]
        return y * y + view.sum()

    gradients(f, X, X + 1)


def test_views_see_each_other():
    def f(x, z):
        y = x * 1
        a, b = y[:3], y[1:]
        a *= 2
        b += z[1:]
        a[2] = z[0]
        return a.sum() * b * b

    gradients(f, X, X + 1)


def test_view_of_a_view_after_a_write():
    def f(x):
        y = x * 2
        a = y[1:]
        b = a[1:]
        y *= x
        b *= 3
        return a * b.sum()

    gradients(f, X)


def test_broadcast_write():
    def f(x, z):
        y = x * 1
        y[:, 1:3] = z[:3].reshape(3, 1)
        y[0] = z
        return y * y

    gradients(f, M, X)


def test_write_into_split_parts():
    def f(x, z):
        y = x * 1
        first, second = y.split(2)
        first *= z[:2]
        second.copy_(z[2:] * 2)
        return y * y

    gradients(f, X, X + 1)


def test_write_through_as_strided():
    def f(x, z):
        y = x * 1
        td.as_strided(y, (2,), (2,), 1).mul_(z[:2])
        return y * y

    gradients(f, X, X + 1)


def test_diagonal_write():
    def f(x, z):
        y = x * 1
        td.diagonal(y).mul_(z[:3])
        return y * y

    gradients(f, M, X)


def test_write_under_no_grad_changes_no_history():
    x = td.tensor(X, requires_grad=True)
    y = x + 1
    with td.no_grad():
        y[0] = 100.0
    (y * 2).sum().backward()
    assert x.grad.tolist() == [2] * 4


def test_old_view_after_write_under_no_grad():
    x = td.tensor(X, requires_grad=True)
    y = x + 1
    view = y[1:]
    with td.no_grad():
        y[1] = 100.0
    assert float(view[0]) == 100
    view.sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 1]


def test_overlapping_source():
    x = td.arange(6.0)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    x[:-1] += x[1:]
    assert x.tolist() == [0, 1, 3, 5, 7, 4]


def test_expanded_targets_are_errors():
    with pytest.raises(td.TandemError, match="share one memory location"):
        td.zeros(3).expand(2, 3).add_(1)


def test_shape_and_dtype_cannot_change():
    with pytest.raises(td.ShapeError, match="in-place operator cannot change"):
        td.zeros(3).add_(td.zeros((2, 3)))
    with pytest.raises(td.DTypeError, match="written to holds int64"):
        td.arange(3).mul_(0.5)


# -- versions


def test_changed_after_saving():
    x = td.tensor(X, requires_grad=True)
    y = td.exp(x)  # keeps its result
    saved = line() - 1
    y.add_(1)
    changed = line() - 1
    with pytest.raises(td.AutogradError) as caught:
        y.sum().backward()
    text = str(caught.value)
    assert "changed in place" in text and "exp" in text
    assert f"test_inplace.py:{saved}" in text and f"test_inplace.py:{changed}" in text
    assert text.index(f":{saved}") < text.index(f":{changed}")


def test_operand_changed_after_saving():
    x, w = td.tensor(X, requires_grad=True), td.tensor(X)
    y = x * w
    w[0] = 7.0
    with pytest.raises(td.AutogradError, match="changed in place"):
        y.sum().backward()


def test_changed_through_a_view_or_numpy():
    x, w = td.tensor(X, requires_grad=True), td.tensor(X)
    y = x * w
    w.view(2, 2)[0].zero_()
    with pytest.raises(td.AutogradError, match="changed in place"):
        y.sum().backward()


def test_change_of_what_was_not_saved_is_fine():
    x = td.tensor(X, requires_grad=True)
    y = x + 1
    z = y * 3
    y.mul_(2)  # neither + nor the factor 3 needs y
    (z + y).sum().backward()
    assert x.grad.tolist() == [5] * 4


def test_saved_scalar_operand():
    x = td.tensor(X, requires_grad=True)
    y = x * 3.0
    y.div_(2.0)
    y.sum().backward()
    assert x.grad.tolist() == [1.5] * 4


def test_version():
    x = td.zeros(3)
    before = x._version
    x.add_(1)
    x[0] = 2
    assert x._version > before and x[1:]._version == x._version


def test_mutation_of_a_saved_input_is_kept_as_a_copy():
    """x *= y needs the old x for y's gradient; the operator keeps it."""

    def f(x, y):
        z = x * 1
        z *= y
        return z * z

    gradients(f, X, X + 1)


def test_failed_write_changes_nothing():
    x = td.arange(4.0)
    for fail in (
        lambda: x.__setitem__(td.tensor([0, 9]), 5.0),
        lambda: x.__setitem__(slice(0, 2), td.ones(3)),
        lambda: x.scatter_(0, td.tensor([1, -7]), td.ones(2)),
        lambda: x.index_add_(0, td.tensor([2, 4]), td.ones(2)),
        lambda: x.add_(td.ones((2, 4))),
        lambda: x.__setitem__(9, 1.0),
    ):
        with pytest.raises(td.TandemError):
            fail()
        assert x.tolist() == [0, 1, 2, 3]


def test_write_through_views_of_nothing():
    x = td.zeros((0, 3), dtype=td.float64, requires_grad=True)
    y = x * 2
    y[:, 1:] *= 3
    y.sum().backward()
    assert x.grad.shape == (0, 3)
    z = td.tensor(X, requires_grad=True)
    w = z * 2
    w[2:2] = 7.0
    w.sum().backward()
    assert z.grad.tolist() == [2] * 4


def test_infinite_gradients_are_erased_where_overwritten():
    x = td.tensor(X, requires_grad=True)
    y = x * 1
    y[0] = 5.0
    y.backward(td.tensor([float("inf"), 1.0, 1.0, 1.0], dtype=td.float64))
    assert x.grad.tolist() == [0, 1, 1, 1]


def test_write_through_a_view_of_strided_memory():
    """The base itself has gaps or runs backwards in memory."""
    a = np.arange(12.0)

    def f(x):
        base = td.from_numpy(np.zeros(24)[::-2])
        base[2:9:3] = x[:3] * x[:3]
        base[5] *= x[3]
        return base * base

    gradients(f, a[:4] + 1)
