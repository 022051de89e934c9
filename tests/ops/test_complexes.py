"""Complex numbers: parts, arithmetic, promotion, reductions, products, views, and what they do not have."""

import doctest
import pathlib

import numpy as np
import pytest

import tandem as td
from tests.check import check_op

COMPLEX = ("complex64", "complex128")
SMALL = [(2, 3), (), (5,), (0,)]


def complex_numbers(*shape, seed=0, dtype=np.complex128):
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


@pytest.mark.parametrize(
    ("op", "reference"),
    [
        (td.real, np.real),
        (td.imag, np.imag),
        (td.conj, np.conj),
        (td.angle, np.angle),
        (td.abs, np.abs),
        (td.negative, np.negative),
        (td.square, np.square),
        (td.reciprocal, lambda x: 1 / x),
        (td.sign, lambda x: x / np.abs(x)),
        (td.positive, np.positive),
        (td.clone, np.copy),
        (td.view_as_real, lambda x: np.stack([x.real, x.imag], -1)),
        (td.sum, np.sum),
        (td.prod, np.prod),
        (td.mean, lambda x: np.mean(x) if x.size else np.complex64(complex(np.nan, np.nan))),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_unary(op, reference):
    check_op(op, reference, shapes=SMALL, dtypes=COMPLEX, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "reference"),
    [(td.add, np.add), (td.subtract, np.subtract), (td.multiply, np.multiply), (td.divide, np.divide)],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_binary(op, reference):
    check_op(op, reference, shapes=[((2, 3), (3,)), ((2, 1), ()), ((4,), (4,))], dtypes=COMPLEX, low=0.3)


@pytest.mark.parametrize("op", [td.equal, td.not_equal], ids=lambda f: f.__name__)
def test_equality(op):
    x = np.array([1 + 2j, 1 - 2j, 3 + 2j, np.nan], np.complex64)
    y = np.array([1 + 2j, 1 + 2j, 1 + 2j, np.nan], np.complex64)
    check_op(op, getattr(np, op.__name__), inputs=[(x, y)], grad=False)


def test_real_and_complex_operands_mix():
    z, x = complex_numbers(3, 4), np.random.default_rng(1).normal(size=(3, 4))
    check_op(td.multiply, np.multiply, inputs=[(z, x), (x, z)])
    check_op(td.divide, np.divide, inputs=[(x, z)])
    check_op(lambda a: a * 2j + 1, lambda a: a * 2j + 1, inputs=[(x,), (z,)])


def test_complex_from_parts():
    check_op(td.complex, lambda a, b: a + 1j * b, shapes=[((2, 3), (3,)), ((), ())], dtypes=("float32", "float64"))
    check_op(td.polar, lambda a, b: a * np.exp(1j * b), shapes=[((2, 3), (2, 3))], dtypes=("float32",))
    check_op(
        td.view_as_complex, lambda a: a[..., 0] + 1j * a[..., 1], shapes=[(3, 2), (2,), (0, 2)], dtypes=("float32",)
    )
    with pytest.raises(td.ShapeError, match="last axis must have size 2"):
        td.view_as_complex(td.zeros(3))
    with pytest.raises(td.DTypeError, match="float32 or float64"):
        td.complex(td.zeros(2, dtype=td.float16), td.zeros(2, dtype=td.float16))


def test_tests_of_elements():
    x = np.array([1, 1j, complex(np.nan, 0), complex(0, np.inf), complex(np.inf, np.nan), 0], np.complex64)
    for op, reference in (
        (td.isnan, np.isnan), (td.isinf, np.isinf), (td.isfinite, np.isfinite),
        (td.isreal, np.isreal), (td.iscomplex, np.iscomplex), (td.logical_not, np.logical_not),
        (td.any, np.any), (td.all, np.all), (td.count_nonzero, np.count_nonzero),
    ):  # fmt: skip
        check_op(op, reference, inputs=[(x,)], grad=False)
    assert td.is_complex(td.tensor(x)) and not td.is_complex(td.ones(2))
    assert td.is_floating_point(td.ones(2)) and not td.is_floating_point(td.tensor(x))


def test_products():
    a, b, v = complex_numbers(2, 3, 4), complex_numbers(2, 4, 3, seed=1), complex_numbers(4, seed=2)
    check_op(td.matmul, np.matmul, inputs=[(a, b), (a[0], b[0]), (a, v), (v, v), (a[0], v), (v, b[0])])
    check_op(td.matmul, np.matmul, inputs=[(a.astype(np.complex64), b.astype(np.complex64))], grad=False)
    check_op(td.vdot, np.vdot, inputs=[(v, v[::-1])])
    check_op(td.vecdot, lambda x, y: (np.conj(x) * y).sum(-1), inputs=[(a, a[::-1])])
    check_op(td.tensordot, lambda x, y: np.tensordot(x, y, 1), inputs=[(a[0], b[0])], args=(1,))
    check_op(
        lambda x, y: td.einsum("bij,bjk->ik", x, y), lambda x, y: np.einsum("bij,bjk->ik", x, y), inputs=[(a, b)],
        names=["einsum"],
    )  # fmt: skip
    check_op(td.linear, lambda x, w: x @ w.T, inputs=[(a[0], a[1])])


def test_convolution():
    x, w, b = complex_numbers(1, 2, 5), complex_numbers(3, 2, 2, seed=1), complex_numbers(3, seed=2)

    def reference(x, w, b):
        rows = np.lib.stride_tricks.sliding_window_view(x, 2, axis=2)
        return np.einsum("nctk,ock->not", rows, w) + b[:, None]

    check_op(td.conv1d, reference, inputs=[(x, w, b)], test_layouts=False)


def test_linspace():
    np.testing.assert_allclose(td.linspace(1j, 2 + 3j, 5).numpy(), np.linspace(1j, 2 + 3j, 5), rtol=1e-6)
    assert td.linspace(0, 1, 3, dtype=td.complex128).dtype is td.complex128
    with pytest.raises(td.DTypeError, match="use a complex dtype"):
        td.linspace(0, 1j, 3, dtype=td.float32)


def test_complex_layers():
    layer = td.nn.Linear(3, 2, dtype=td.complex64)
    layer(td.randn(4, 3, dtype=td.complex64)).abs().sum().backward()
    assert layer.weight.dtype is td.complex64 and layer.weight.grad.dtype is td.complex64
    td.nn.utils.clip_grad_norm_(layer.parameters(), 0.5)
    assert td.norm(layer.weight.grad).item() <= 0.5 + 1e-5


def test_running():
    z = complex_numbers(3, 4)
    check_op(td.cumulative_sum, lambda x: np.cumsum(x, 1), inputs=[(z,)], kwargs={"axis": 1})
    check_op(td.cumulative_prod, lambda x: np.cumprod(x, 1), inputs=[(z,)], kwargs={"axis": 1})
    check_op(td.sum, lambda x: x.sum(0), inputs=[(complex_numbers(70, 3),)], args=(0,), second=False)
    check_op(td.prod, lambda x: x.prod((0, 2)), inputs=[(complex_numbers(2, 3, 2),)], args=((0, 2),))


def test_movement_and_selection():
    z, w = complex_numbers(3, 4), complex_numbers(3, 4, seed=1)
    check_op(lambda x: x.T.reshape(6, 2)[::-1, 1], lambda x: x.T.reshape(6, 2)[::-1, 1], inputs=[(z,)], names=[])
    check_op(lambda x, y: td.concat([x, y], 1), lambda x, y: np.concatenate([x, y], 1), inputs=[(z, w)], names=[])
    check_op(
        lambda x, y: td.where(td.real(x) > 0, x, y), lambda x, y: np.where(x.real > 0, x, y), inputs=[(z, w)], names=[]
    )
    check_op(lambda x: td.take(x, td.tensor([0, 2, 0]), axis=0), lambda x: x[[0, 2, 0]], inputs=[(z,)], names=["take"])
    check_op(lambda x: td.flip(x, 0) * 1j, lambda x: x[::-1] * 1j, inputs=[(z,)], names=[])
    # wide enough for tiles and vectors
    for dtype in (np.complex64, np.complex128):
        m = complex_numbers(70, 65, dtype=dtype)
        np.testing.assert_array_equal((td.tensor(m).T + td.tensor(m.T.copy())).numpy(), m.T + m.T)
        np.testing.assert_array_equal(td.tensor(m)[:, 1::2].clone().numpy(), m[:, 1::2])


def test_index_add_repeats():
    z, u = td.zeros((3,), dtype=td.complex64), td.tensor([1 + 1j, 2, 3j])
    assert td.index_add(z, 0, td.tensor([1, 1, 0]), u).tolist() == [3j, 3 + 1j, 0]


@pytest.mark.parametrize(
    "name",
    ["exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tan", "sinh", "cosh",
     "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh"],
)  # fmt: skip
def test_functions_have_gradients(name):
    z = np.array([0.3 + 0.8j, -0.7 + 0.2j, 0.4 - 0.6j])
    numpy_name = {
        "asin": "arcsin",
        "acos": "arccos",
        "atan": "arctan",
        "asinh": "arcsinh",
        "acosh": "arccosh",
        "atanh": "arctanh",
    }
    reference = {
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "exp2": lambda x: 2**x,
    }.get(name, getattr(np, numpy_name.get(name, name), None))
    check_op(getattr(td, name), reference, inputs=[(z,)], test_layouts=False)


def test_powers_have_gradients():
    z, w = complex_numbers(3), complex_numbers(3, seed=1)
    check_op(td.power, np.power, inputs=[(z, w)], test_layouts=False)
    check_op(
        lambda x: x**3 + x ** (0.5 - 1j), lambda x: x**3 + x ** (0.5 - 1j), inputs=[(z,)], names=[], test_layouts=False
    )
    x = np.array([0.5, 2.0, 3.0])
    check_op(td.power, np.power, inputs=[(x, w)], test_layouts=False)


def test_summaries():
    z = complex_numbers(3, 4)
    check_op(td.var, lambda x: np.var(x, 1), inputs=[(z,)], args=(1,))
    check_op(td.std, np.std, inputs=[(z,)])
    check_op(td.vector_norm, lambda x: np.linalg.norm(x.ravel()), inputs=[(z,)])
    check_op(td.vector_norm, lambda x: np.abs(x).sum(1), inputs=[(z,)], kwargs={"ord": 1, "axis": 1})
    check_op(lambda a: td.lerp(a, a * 2j, 0.25), lambda a: a + 0.25 * (a * 2j - a), inputs=[(z,)], names=["lerp"])
    check_op(td.round, np.round, inputs=[(z * 3,)], grad=False)
    bad = np.array([complex(np.nan, 1), complex(np.inf, 0)], np.complex64)
    check_op(td.nan_to_num, np.nan_to_num, inputs=[(bad,)], grad=False)
    assert td.allclose(td.tensor(z), td.tensor(z + 1e-9)) and not td.allclose(td.tensor(z), td.tensor(z + 1j))


def test_random():
    td.manual_seed(0)
    z = td.randn(200, 200, dtype=td.complex64)
    assert z.dtype is td.complex64
    assert abs(td.mean(z).item()) < 0.02 and abs(td.var(z).item() - 1) < 0.02
    assert abs(td.var(z.real).item() - 0.5) < 0.01 and abs(td.mean(z.real * z.imag).item()) < 0.01
    u = td.rand(1000, dtype=td.complex128)
    assert 0 <= u.real.min().item() and u.imag.max().item() < 1 and abs(u.imag.mean().item() - 0.5) < 0.05
    assert td.randn_like(z).dtype is td.complex64


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS"])
def test_optimizers_take_complex_parameters_as_pairs(kind):
    start = complex_numbers(3)
    z, pairs = td.tensor(start, requires_grad=True), td.tensor(start.view(np.float64).reshape(3, 2), requires_grad=True)
    options = {"momentum": 0.9} if kind == "SGD" else {}
    step_z, step_pairs = (getattr(td.optim, kind)([p], lr=0.1, **options) for p in (z, pairs))

    def loss_of_z():
        step_z.zero_grad()
        loss = (td.abs(z - (1 + 2j)) ** 2).sum()
        loss.backward()
        return loss

    def loss_of_pairs():
        step_pairs.zero_grad()
        loss = ((pairs - td.tensor([1.0, 2.0], dtype=td.float64)) ** 2).sum()
        loss.backward()
        return loss

    for _ in range(3):
        step_z.step(loss_of_z)
        step_pairs.step(loss_of_pairs)
    np.testing.assert_allclose(td.view_as_real(z.detach()).numpy(), pairs.detach().numpy(), rtol=1e-12)


def test_optimizer_of_complex_variables_in_a_session():
    start = complex_numbers(3)
    with td.Graph() as graph:
        z = td.Variable(td.tensor(start))
        train = td.optim.Adam([z], lr=0.1).minimize((td.abs(z - (1 + 2j)) ** 2).sum())
        init = td.global_variables_initializer()
    with td.Session(graph) as session:
        session.run(init)
        for _ in range(3):
            session.run(train)
        value = session.run(z)
    eager = td.tensor(start, requires_grad=True)
    optimizer = td.optim.Adam([eager], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (td.abs(eager - (1 + 2j)) ** 2).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(value.numpy(), eager.detach().numpy(), rtol=1e-12)


# -- memory


def test_parts_are_views():
    z = td.tensor([1 + 2j, 3 - 4j])
    z.real.mul_(2)
    z.imag = td.tensor([5.0, 6.0])
    assert z.tolist() == [2 + 5j, 6 + 6j]
    pairs = td.view_as_real(z)
    pairs[0, 1] = 0
    assert z.tolist() == [2, 6 + 6j] and pairs.strides == (2, 1)
    back = td.view_as_complex(pairs)
    assert back.data_ptr() == z.data_ptr() and back.shape == (2,)
    apart = td.view_as_complex(td.zeros(2, 3).T)  # pairs that do not lie side by side are copied
    assert apart.shape == (3,)
    with pytest.raises(td.DTypeError, match="no imaginary part"):
        td.ones(2).imag = 1


def test_writes_through_parts_have_gradients():
    def f(z):
        y = z * 1
        y.real.mul_(2)
        y.imag[0] = y.real[1] * 3
        td.view_as_real(y)[1].mul_(y.real[0, 0].clone())
        return y * y

    def reference(z):
        y = z.copy()
        y.real *= 2
        y.imag[0] = y.real[1] * 3
        y[1] *= y.real[0, 0]
        return y * y

    check_op(f, reference, inputs=[(complex_numbers(3, 2),)], names=[], deferred=False, test_layouts=False)

    def g(x):
        y = x * 1
        td.view_as_complex(y).mul_(2j)
        return y * x

    def g_reference(x):
        y = (x.view(np.complex128) * 2j).view(np.float64)
        return y * x

    x = np.random.default_rng(0).normal(size=(3, 2))
    check_op(g, g_reference, inputs=[(x,)], names=[], deferred=False, test_layouts=False)


def test_exchange_with_numpy_and_dlpack():
    a = complex_numbers(3, 4, dtype=np.complex64)
    t = td.from_numpy(a)
    a[0, 0] = 7j
    assert t[0, 0].item() == 7j and t.numpy().base is not None
    np.testing.assert_array_equal(np.from_dlpack(t), a)
    np.testing.assert_array_equal(td.from_dlpack(a.T).numpy(), a.T)
    np.testing.assert_array_equal(np.asarray(memoryview(t)), a)


# -- types


def test_promotion():
    z = td.tensor([1j])
    assert (z + 1).dtype is td.complex64 and (z * 2.5).dtype is td.complex64 and (z + td.ones(1)).dtype is td.complex64
    assert (z + td.ones(1, dtype=td.float64)).dtype is td.complex128
    assert (td.ones(1, dtype=td.float64) * 1j).dtype is td.complex128 and (td.arange(2) + 1j).dtype is td.complex64
    assert td.tensor([1.0, 2j]).dtype is td.complex64 and td.tensor(1j, dtype=td.complex128).dtype is td.complex128
    assert td.full((2,), 1j).dtype is td.complex64 and td.exp(1j).dtype is td.complex64
    assert td.abs(z).dtype is td.float32 and td.abs(td.tensor(1j, dtype="complex128")).dtype is td.float64
    with pytest.raises(td.DTypeError, match="complex64 but the tensor written to holds float32"):
        td.ones(2).mul_(1j)


def test_casts():
    x = td.tensor([1.5, -2.0])
    assert x.to(td.complex64).tolist() == [1.5, -2] and x.to(complex).dtype is td.complex128
    assert td.tensor([0j, 1j]).bool().tolist() == [False, True]
    assert td.tensor([1 + 2j]).float().tolist() == [1.0]  # as PyTorch has it; astype, as the standard has it:
    with pytest.raises(td.DTypeError, match="without losing its imaginary part"):
        td.astype(td.tensor([1j]), td.float32)
    check_op(lambda a: td.astype(a, td.complex128), lambda a: a + 0j, shapes=[(3,)], names=["astype"])


def test_text():
    assert repr(td.tensor([1 + 2j, 0 - 0.5j])) == "tensor([1.0000+2.0000j, 0.0000-0.5000j])"
    assert repr(td.tensor([1, 2j], dtype=td.complex128)) == "tensor([1.+0.j, 0.+2.j], dtype=complex128)"
    assert td.tensor(2 - 1j).item() == 2 - 1j and complex(td.tensor(2 - 1j)) == 2 - 1j


@pytest.mark.parametrize(
    "call",
    [
        lambda z: z < z, lambda z: z >= 1, lambda z: td.maximum(z, z), lambda z: td.max(z), lambda z: td.argmax(z),
        lambda z: td.sort(z), lambda z: td.floor(z), lambda z: z // z, lambda z: z % z, lambda z: td.atan2(z, z),
        lambda z: td.clip(z, 0, 1), lambda z: td.relu(z), lambda z: td.softmax(z, -1), lambda z: z & z, lambda z: ~z,
        lambda z: td.erf(z), lambda z: td.cummax(z, 0),
    ],
)  # fmt: skip
def test_what_complex_numbers_do_not_have(call):
    with pytest.raises(td.DTypeError, match="complex"):
        call(td.tensor([1 + 2j, 3j]))


def test_a_loss_is_real():
    z = td.tensor([1 + 2j], requires_grad=True)
    with pytest.raises(td.AutogradError, match="a loss must be real"):
        (z * z).sum().backward()
    (z * z).sum().backward(td.tensor(1 + 0j))
    assert z.grad.tolist() == [2 - 4j]


def test_page():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "complex.md").read_text()
    test = doctest.DocTestParser().get_doctest(text.replace("```", ""), {"td": td}, "complex.md", None, 0)
    assert len(test.examples) > 5
    report = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)


def test_compiled_step_with_complex_parameters():
    start, v = complex_numbers(4, 4), td.tensor(complex_numbers(4, seed=1))

    def train(compiled: bool):
        p = td.nn.Parameter(td.tensor(start))
        optimizer = td.optim.Adam([p], lr=0.01)

        def step():
            optimizer.zero_grad()
            loss = (td.abs(p @ v - 1j) ** 2).mean() + td.sum(td.abs(p @ p))
            loss.backward()
            p.grad.real.mul_(2)
            optimizer.step()
            return loss

        run = td.compile(step) if compiled else step
        return [run().item() for _ in range(3)], p.detach().numpy()

    losses, trained = train(False)
    compiled_losses, compiled_trained = train(True)
    np.testing.assert_allclose(compiled_losses, losses, rtol=1e-12)
    np.testing.assert_allclose(compiled_trained, trained, rtol=1e-10)
    assert losses[2] < losses[0]


def test_parts_of_one_element_are_not_taken_for_it():
    @td.compile
    def f(z):
        y = z * 2
        y.real.mul_(3)
        return y + td.real(z), y.real * z.imag

    for z in (td.tensor(1 + 2j), td.tensor([1 + 2j])):
        a, b = f(z)
        assert a.sum().item() == 7 + 4j and b.sum().item() == 12


def test_loops_carry_complex_numbers():
    def f(x):
        return td.scan(lambda carry, k: (carry * carry + k, carry), x, td.arange(1.0, 4.0))[0]

    z = complex_numbers(2) * 0.3

    def reference(x):
        for k in (1.0, 2.0, 3.0):
            x = x * x + k
        return x

    check_op(f, reference, inputs=[(z,)], names=[], test_layouts=False, deferred=False, rtol=1e-6)
