import numpy as np
import pytest

import tandem as td


def cube(x):
    return (x**3).sum()


def test_grad():
    assert td.grad(cube)(td.tensor([1.0, 2.0])).tolist() == [3, 12]


def test_value_and_grad():
    value, g = td.value_and_grad(cube)(td.tensor(2.0))
    assert (float(value), float(g)) == (8, 12) and not value.requires_grad


def test_argnums():
    f = lambda x, y, z: (x * y * z).sum()
    args = (td.tensor(2.0), td.tensor(3.0), td.tensor(4.0))
    assert float(td.grad(f, 1)(*args)) == 8
    assert [float(g) for g in td.grad(f, (0, 2))(*args)] == [12, 6]


def test_has_aux():
    (value, aux), g = td.value_and_grad(lambda x: (x * x, "kept"), has_aux=True)(td.tensor(3.0))
    assert (float(value), aux, float(g)) == (9, "kept", 6)
    g, aux = td.grad(lambda x: (x * x, 5), has_aux=True)(td.tensor(3.0))
    assert (float(g), aux) == (6, 5)


def test_grad_and_value_has_the_order_of_pytorch():
    g, value = td.func.grad_and_value(cube)(td.tensor(2.0))
    assert (float(g), float(value)) == (12, 8)
    g, (value, aux) = td.func.grad_and_value(lambda x, y: (x * y, "kept"), (0, 1), has_aux=True)(
        td.tensor(3.0), td.tensor(4.0)
    )
    assert ([float(v) for v in g], float(value), aux) == ([4, 3], 12, "kept")


def test_nesting():
    x = td.tensor(2.0)
    second = td.grad(td.grad(lambda x: x**4))
    third = td.grad(second)
    assert float(second(x)) == 48 and float(third(x)) == 48


def test_nesting_with_closures():
    """The inner function closes over the outer variable: d/dx [x * d/dy (x y^2)] = d/dx [2 x^2 y]."""
    y = td.tensor(3.0)

    def outer(x):
        return x * td.grad(lambda y: x * y * y)(y)

    assert float(td.grad(outer)(td.tensor(5.0))) == 4 * 5 * 3


def test_perturbations_are_not_confused():
    """The classic: d/dx (x * d/dy (x + y) at y=1) is 1, not 2."""
    f = lambda x: x * td.grad(lambda y: x + y)(td.tensor(1.0))
    assert float(td.grad(f)(td.tensor(1.0))) == 1


def test_closed_over_parameters_get_gradients():
    w = td.tensor(3.0, requires_grad=True)
    g = td.grad(lambda x: x * x * w)(td.tensor(2.0))
    assert float(g) == 12
    assert w.grad is None  # a gradient function has no side effects


def test_gradients_of_recorded_arguments_are_recorded():
    x = td.tensor(2.0, requires_grad=True)
    g = td.grad(lambda t: t**3)(x)
    g.backward()
    assert float(x.grad) == 12


def test_grad_inside_no_grad():
    with td.no_grad():
        assert float(td.grad(lambda x: x * x)(td.tensor(3.0))) == 6


def test_results_do_not_depend_on_the_argument():
    assert td.grad(lambda x: td.tensor(1.0))(td.ones(2)).tolist() == [0, 0]


def test_errors():
    with pytest.raises(td.AutogradError, match="one element"):
        td.grad(lambda x: x * 2)(td.ones(2))
    with pytest.raises(td.AutogradError, match="only floating"):
        td.grad(lambda x: x.sum())(td.arange(3))
    with pytest.raises(td.AutogradError, match="only tensors"):
        td.grad(lambda x: x)(3.0)
    with pytest.raises((td.TandemError, IndexError), match="argument"):
        td.grad(lambda x: x, argnums=3)(td.ones(()))


def test_keywords():
    f = lambda x, scale=1.0: (x * scale).sum()
    assert td.grad(f)(td.ones(2), scale=3.0).tolist() == [3, 3]


def test_vjp():
    value, pull = td.vjp(lambda x, y: (x * y, x + y), td.tensor([1.0, 2.0]), td.tensor([3.0, 4.0]))
    assert value[0].tolist() == [3, 8]
    gx, gy = pull((td.ones(2), td.tensor([10.0, 0.0])))
    assert gx.tolist() == [13, 4] and gy.tolist() == [11, 2]
    gx, gy = pull((td.ones(2), td.zeros(2)))  # again
    assert gx.tolist() == [3, 4]


def test_vjp_of_a_single_output():
    _, pull = td.vjp(lambda x: x * x, td.tensor([1.0, 2.0]))
    assert pull(td.ones(2))[0].tolist() == [2, 4]


def test_vjp_inside_grad():
    def f(x):
        _, pull = td.vjp(lambda t: t**3, x)
        return pull(td.ones(()))[0]

    assert float(td.grad(f)(td.tensor(2.0))) == 12


def test_hessian_by_rows():
    x = np.array([1.0, 2.0, 3.0])
    f = lambda t: (t**3).sum() + t[0] * t[1] * t[2]
    rows = [td.grad(lambda t, i=i: td.grad(f)(t)[i])(td.tensor(x)).numpy() for i in range(3)]
    expected = np.diag(6 * x) + np.array([[0, 3, 2], [3, 0, 1], [2, 1, 0]])
    np.testing.assert_allclose(rows, expected)


def test_what_gradient_functions_give_beside_gradients_has_no_history_of_their_own():
    x = td.tensor([1.0, 2.0])
    value, _, beside = td.func.vjp(lambda a: (a * 2, a.sin()), x, has_aux=True)
    assert not value.requires_grad and not beside.requires_grad
    assert value.numpy().tolist() == [2, 4]
    _, beside = td.func.grad(lambda a: ((a * 2).sum(), [a * 3, a]), has_aux=True)(x)
    assert not beside[0].requires_grad and not beside[1].requires_grad
    _, beside = td.func.jacrev(lambda a: (a * a, a * 3), has_aux=True)(x)
    assert not beside.requires_grad


def test_what_gradient_functions_give_beside_gradients_keeps_the_history_of_others():
    x, w = td.tensor([1.0, 2.0]), td.tensor([3.0, 4.0], requires_grad=True)
    beside = td.func.vjp(lambda a: (a * 2, a * w), x, has_aux=True)[2]
    beside.sum().backward()
    assert w.grad.tolist() == [1, 2]
    beside = td.func.grad(lambda a: ((a * 2).sum(), a * a), has_aux=True)(w)[1]
    assert td.autograd.grad(beside.sum(), w)[0].tolist() == [6, 8]
    assert td.grad(lambda a: td.func.grad(lambda b: ((b**3).sum(), b**2), has_aux=True)(a)[1].sum())(x).tolist() == [
        2,
        4,
    ]


def test_a_gradient_function_inside_of_another_leaves_no_history():
    x = td.tensor([1.0, 2.0])
    outer = td.grad(lambda a: (td.func.vjp(lambda b: b**2 * a, x)[0] + td.grad(lambda b: (b**2 * a).sum())(x)).sum())(x)
    assert not outer.requires_grad
    assert outer.tolist() == [3, 8]
