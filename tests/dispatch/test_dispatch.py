"""The eager path: binding, plans and their reuse, in-place writes, errors."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem.ops.define import op


def fresh(name="probe"):
    """An operator of its own, with no plans yet."""

    def body(x: Tensor, y: Tensor):  # noqa: F821
        return F.add(F.multiply(x, y), 1)

    body.__name__ = name
    function = op(body)
    F.FUNCTIONS.pop(name)
    F.METHODS.discard(name)
    return function


def test_new_sizes_share_a_plan():
    f = fresh()
    for n in (2, 3, 7, 100, 5000, 0):
        x = td.arange(n, dtype=td.float32)
        assert np.array_equal(np.arange(n) * 2.0 + 1, f(x, x * 0 + 2).numpy())
    assert f.num_plans == 1


def test_new_numbers_share_a_plan():
    f = fresh()
    x = td.ones(3)
    assert [3.0, 3.5] == [f(x, v)[0].item() for v in (2.0, 2.5)]
    assert f.num_plans == 1


def test_a_new_step_size_shares_a_plan():
    x = td.ones(5)
    td.add(x, x, alpha=0.5)
    plans = td.add.num_plans
    assert [1.25, 1.75] == [td.add(x, x, alpha=v)[0].item() for v in (0.25, 0.75)]
    assert td.add.num_plans == plans


def test_broadcasting_makes_its_own_plan_and_stays_right():
    f = fresh()
    x = td.ones(3, 4)
    assert (3, 4) == f(x, td.ones(3, 4)).shape
    assert (3, 4) == f(x, td.ones(4)).shape
    assert (3, 4) == f(td.ones(3, 1), td.ones(1, 4)).shape
    assert (5, 4) == f(td.ones(5, 4), td.ones(5, 4)).shape
    assert f.num_plans == 3


def test_a_size_that_stops_fitting_is_an_error_not_a_wrong_answer():
    f = fresh()
    f(td.ones(3), td.ones(3))
    with pytest.raises(td.ShapeError, match=r"shapes \(3,\) and \(4,\) do not broadcast"):
        f(td.ones(3), td.ones(4))
    assert [2.0] * 3 == f(td.ones(3), td.ones(3)).tolist()


def test_errors_name_the_users_line():
    with pytest.raises(td.ShapeError) as info:
        td.ones(2, 3) @ td.ones(4, 5)
    assert "test_dispatch.py" in str(info.value)
    assert "matmul: x is (2, 3) and y is (4, 5); the last axis of x (3) must equal" in str(info.value)


def test_dim_and_keepdim_are_accepted():
    x = td.ones(2, 3)
    assert (2, 1) == td.sum(x, dim=1, keepdim=True).shape == td.sum(x, axis=1, keepdims=True).shape


@pytest.mark.parametrize("call", [
    lambda: td.add(),
    lambda: td.add(1),
    lambda: td.add(1, 2, 3, 4),
    lambda: td.add(td.ones(2), td.ones(2), bogus=1),
    lambda: td.add(td.ones(2), x=td.ones(2)),
    lambda: td.add("a", td.ones(2)),
    lambda: td.add(td.ones(2), [1, 2]),
    lambda: td.add(td.ones(2), None),
    lambda: td.reshape(td.ones(2), ("a",)),
    lambda: td.concat(3),
])  # fmt: skip
def test_wrong_arguments_raise_type_errors(call):
    with pytest.raises(TypeError):
        call()


def test_numpy_arguments_are_taken():
    x = td.ones(2)
    assert [3.0, 3.0] == (x + np.array([2, 2], dtype=np.float32)).tolist()
    assert [3.0, 3.0] == (np.array([2, 2], dtype=np.float32) + x).tolist()
    result = x * np.float64(2)
    assert td.float32 is result.dtype


def test_python_numbers_are_weak():
    assert td.float32 is (td.ones(2) + 1).dtype
    assert td.int8 is (td.ones(2, dtype=td.int8) + 1).dtype
    assert td.float32 is (td.ones(2, dtype=td.int8) + 1.5).dtype
    assert td.float64 is (td.ones(2, dtype=td.float64) + 1.5).dtype


# -- in place


def test_in_place_keeps_identity_and_memory():
    x = td.ones(3)
    y = x
    x += 2
    assert y is x and [3.0] * 3 == y.tolist()


def test_in_place_through_overlapping_views_reads_the_old_contents():
    x = td.arange(6, dtype=td.float32)
    x[1:] += x[:-1]
    assert [0.0, 1.0, 3.0, 5.0, 7.0, 9.0] == x.tolist()
    x = td.arange(9, dtype=td.float32).reshape(3, 3)
    x.copy_(x.T)
    assert np.array_equal(np.arange(9).reshape(3, 3).T, x.numpy())


def test_in_place_cannot_change_shape_or_kind():
    x = td.ones(3)
    with pytest.raises(td.ShapeError, match="in-place"):
        x += td.ones(2, 3)
    i = td.arange(3)
    with pytest.raises(td.DTypeError, match="float32"):
        i += 0.5
    assert [0, 1, 2] == i.tolist() and [1.0] * 3 == x.tolist()


def test_read_only_and_expanded_memory_is_not_written():
    array = np.ones(3, dtype=np.float32)
    array.flags.writeable = False
    with pytest.raises(td.TandemError, match="read-only"):
        td.from_numpy(array).add_(1)
    with pytest.raises(td.TandemError, match="share one memory"):
        td.ones(1).expand(3).add_(1)
    assert array.tolist() == [1.0] * 3


# -- several results in place


def _rotate(x, y, z, step):
    return y + step, x * 2, z + x


def rotate():
    def body(x: Tensor, y: Tensor, z: Tensor, step: Tensor):  # noqa: F821
        return _rotate(x, y, z, step)

    return op(body, name="rotate", hidden=True, mutates=("x", "y", "z"))


def test_an_operator_can_write_several_of_its_arguments():
    f = rotate()
    x, y, z = td.arange(3.0), td.ones(3), td.zeros(3)
    for step in (1.0, 2.5):
        expected = [v.tolist() for v in _rotate(x.clone(), y.clone(), z.clone(), step)]
        assert x is f(x, y, z, step)
        assert expected == [x.tolist(), y.tolist(), z.tolist()]
    assert 1 == f.num_plans


def test_every_written_tensor_counts_its_changes():
    f = rotate()
    tensors = x, y, z = td.ones(2), td.ones(2), td.ones(2)
    before = [t._version for t in tensors]
    f(x, y, z, 1.0)
    assert [v + 1 for v in before] == [t._version for t in tensors]


def test_written_tensors_must_not_share_memory():
    base = td.zeros(4)
    with pytest.raises(td.ValueRangeError, match="share memory"):
        rotate()(base[:2], base[1:3], td.zeros(2), 1.0)
    with pytest.raises(td.DTypeError, match="not a number"):
        rotate()(td.zeros(2), 1.0, td.zeros(2), 1.0)


def test_gradients_reach_every_written_tensor():
    f = rotate()
    leaves = [td.tensor([v], requires_grad=True) for v in (2.0, 3.0, 5.0)]
    x, y, z = (t.clone() for t in leaves)
    f(x, y, z, 1.0)
    (x * 1 + y * 10 + z * 100).sum().backward()
    assert [[20.0 + 100.0], [1.0], [100.0]] == [t.grad.tolist() for t in leaves]


def test_what_is_written_and_saved_keeps_its_old_value_for_backward():
    def body(x: Tensor, y: Tensor):  # noqa: F821
        return F.multiply(x, y), F.exp(y)

    f = op(body, name="pair", hidden=True, mutates=("x", "y"))
    a, b = td.tensor([2.0], requires_grad=True), td.tensor([0.5], requires_grad=True)
    x, y = a.clone(), b.clone()
    f(x, y)
    (x + y).sum().backward()
    np.testing.assert_allclose([0.5], a.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose([2 + np.exp(0.5)], b.grad.numpy(), rtol=1e-6)


# -- threads


def test_many_threads_use_the_same_operators():
    f = fresh("threaded")
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(n, n)).astype(np.float32) for n in (3, 40, 300)]
    errors = []

    def work(k):
        try:
            for i in range(30):
                a = data[(i + k) % 3]
                x = td.tensor(a, requires_grad=True)
                y = f(x, x)
                np.testing.assert_allclose(a * a + 1, y.detach().numpy(), rtol=1e-5)
                y.sum().backward()
                np.testing.assert_allclose(2 * a, x.grad.numpy(), rtol=1e-5)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
