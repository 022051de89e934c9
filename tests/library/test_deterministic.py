"""Results do not depend on the number of threads: of our own routines and kernels never, of all others with deterministic
algorithms (Note [Deterministic routines] in src/library/deterministic.h)."""

import numpy as np
import pytest

import tandem as td
from tandem import _runtime
from tandem.machine import tune

nnf = td.nn.functional


def _floats(*shape, dtype=np.float32):
    return td.tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype))


def _indices(size, *shape):
    return td.tensor(np.random.default_rng(size).integers(0, size, shape))


def _bf16(f):
    return lambda *xs: f(*(x.to(td.bfloat16) for x in xs))


def _reductions():
    x = _floats(150, 129, 33)
    for axes in (0, 1, 2, (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        for name in ("sum", "var"):
            f = getattr(td, name)
            yield f"{name} {axes}", lambda x, f=f, axes=axes: f(x, axes), (x,)
            yield f"{name} {axes} permuted", lambda x, f=f, axes=axes: f(x.permute(2, 0, 1), axes), (x,)
    yield "prod", lambda x: td.prod(x, 1), (x,)
    yield "logsumexp", lambda x: td.logsumexp(x, 0), (x,)
    yield "sum of many", td.sum, (_floats(1_000_001),)
    yield "sum of a tall matrix", lambda x: x.sum(0), (_floats(100_001, 10),)
    yield "norm", td.vector_norm, (_floats(300_001),)


def _layers():
    yield "layer_norm", lambda x, w, b: nnf.layer_norm(x, (513,), w, b), (_floats(300, 513), _floats(513), _floats(513))
    image, scale = _floats(8, 16, 29, 29), _floats(16)
    yield "batch_norm", lambda x, w, b: nnf.batch_norm(x, None, None, w, b, training=True), (image, scale, scale)
    yield "group_norm", lambda x, w, b: nnf.group_norm(x, 4, w, b), (image, scale, scale)
    yield "softmax", lambda x: td.softmax(x, -1), (_floats(300, 1001),)
    yield "softmax of columns", lambda x: td.softmax(x, 0), (_floats(3000, 101),)
    yield "cross_entropy", nnf.cross_entropy, (_floats(300, 1000), _indices(1000, 300))
    yield "max_pool", lambda x: nnf.max_pool2d(x, 3, 2, 1), (image,)
    yield "avg_pool", lambda x: nnf.avg_pool2d(x, 3, 2, 1), (image,)
    for shape in ((2, 8, 100, 64), (1, 1, 500, 32), (1, 3, 333, 40)):
        for causal in (False, True):
            f = lambda q, k, v, causal=causal: nnf.scaled_dot_product_attention(q, k, v, is_causal=causal)
            yield f"attention {shape} {causal}", f, (_floats(*shape),) * 3
    yield (
        "attention of one query",
        nnf.scaled_dot_product_attention,
        (_floats(1, 2, 1, 64), *(_floats(1, 2, 3000, 64),) * 2),
    )


def _indexing():
    to, rows = _floats(50, 40), _indices(50, 9000)
    yield "index_add", lambda x, i, y: td.index_add(x, 0, i, y), (to, rows, _floats(9000, 40))
    yield "scatter_add", lambda x, i, y: td.scatter_add(x, 0, i, y), (to, _indices(50, 9000, 40), _floats(9000, 40))
    yield "scatter_add of numbers", lambda x, i, y: td.scatter_add(x, 0, i, y), (_floats(50), rows, _floats(9000))
    yield "embedding", nnf.embedding, (_indices(300, 64, 100), _floats(300, 64))
    yield "getitem", lambda x, i: x[i], (_floats(500), _indices(500, 100_000))
    yield "gather", lambda x, i: td.gather(x, 1, i), (_floats(100, 50), _indices(50, 100, 1000))
    yield "cumsum", lambda x: td.cumsum(x, -1), (_floats(3, 100_001),)
    yield "cumsum of columns", lambda x: td.cumsum(x, 0), (_floats(10_001, 30),)
    yield "sort", lambda x: td.sort(x)[0], (_floats(100_001),)
    for n in (4096, 10_007, 65_536):
        yield f"fft {n}", lambda x: td.abs(td.fft.rfft(x)), (_floats(n),)
        yield f"fft of rows {n}", lambda x: td.abs(td.fft.fft(x)), (_floats(3, n),)


PRODUCTS = [
    (1, 1024, 1024),
    (4096, 1, 300),
    (512, 512, 512),
    (7, 3000, 5),
    (3, 50_000, 3),
    (1000, 1000, 1),
    (300, 5000, 10),
]


def _products():
    for m, k, n in PRODUCTS:
        a, b, bias = _floats(m, k), _floats(k, n), _floats(n)
        yield f"matmul {m} {k} {n}", td.matmul, (a, b)
        yield f"matmul {m} {k} {n} float64", td.matmul, (a.to(td.float64), b.to(td.float64))
        yield f"matmul {m} {k} {n} bfloat16", _bf16(td.matmul), (a, b)
        yield f"linear {m} {k} {n}", lambda a, b, c: td.relu(nnf.linear(a, b.T, c)), (a, b, bias)
    for count in (2, 3, 5, 64):
        yield f"matmul of {count}", td.matmul, (_floats(count, 130, 70), _floats(count, 70, 90))
        yield f"matmul of {count} deep ones", td.matmul, (_floats(count, 16, 2000), _floats(count, 2000, 16))
    spread = lambda a: a + 30 * td.eye(300)
    yield "solve", lambda a, b: td.linalg.solve(spread(a), b), (_floats(300, 300), _floats(300, 3))


CONVOLUTIONS = [  # images, weights, options
    ((4, 64, 28, 28), (64, 64, 3, 3), {"padding": 1}),  # Winograd's
    ((1, 3, 64, 64), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
    ((2, 32, 30, 30), (32, 1, 3, 3), {"padding": 1, "groups": 32}),
    ((3, 64, 14, 14), (128, 64, 1, 1), {}),
    ((2, 64, 14, 14), (64, 16, 3, 3), {"groups": 4, "padding": 1}),
    ((8, 16, 9, 9), (16, 16, 3, 3), {"dilation": 2}),
    ((1, 64, 56, 56), (64, 64, 1, 1), {"stride": 2}),
    ((1, 1, 5000), (1, 1, 513), {}),
    ((2, 8, 12, 12, 12), (16, 8, 3, 3, 3), {"padding": 1}),
]


def _convolutions():
    for image, weight, options in CONVOLUTIONS:
        f = {3: nnf.conv1d, 4: nnf.conv2d, 5: nnf.conv3d}[len(image)]
        run = lambda x, w, b, f=f, options=options: f(x, w, b, **options)
        x, w, b = _floats(*image), _floats(*weight), _floats(weight[0])
        yield f"convolution {image} {weight}", run, (x, w, b)
        yield f"convolution {image} {weight} bfloat16", _bf16(run), (x, w, b)
        last = td.movedim(x, 1, -1).contiguous()
        yield (
            f"convolution {image} {weight} channels last",
            lambda x, w, b, run=run: run(td.movedim(x, -1, 1), w, b),
            (last, w, b),
        )
    transposed = lambda x, w: nnf.conv_transpose2d(x, w, stride=2)
    yield "transposed convolution", transposed, (_floats(4, 16, 15, 15), _floats(16, 8, 3, 3))


OWN = {"reductions": _reductions, "layers": _layers, "indexing": _indexing}
ALL = OWN | {"products": _products, "convolutions": _convolutions}


def _bits(f, operands, compiled=False):
    """Of the result and of all gradients."""

    def step(*xs):
        y = f(*xs)
        weight = td.cos(td.arange(y.numel(), dtype=td.float32)).reshape(y.shape).to(y.dtype)
        return [y.detach(), *td.autograd.grad((y * weight).sum(), [x for x in xs if x.dtype.is_floating_point])]

    xs = [x.detach().clone().requires_grad_() if x.dtype.is_floating_point else x for x in operands]
    results = (td.compile(step) if compiled else step)(*xs)
    return [y.to(td.float64).numpy().tobytes() for y in results]


def _that_differ(cases, counts, compiled=False):
    differ = []
    for name, f, operands in cases():
        found = []
        for count in counts:
            td.set_num_threads(count)
            found.append(_bits(f, operands, compiled))
        if any(bits != found[0] for bits in found):
            differ.append(name)
    return differ


@pytest.fixture(autouse=True)
def _as_before():
    threads = td.get_num_threads()
    yield
    td.set_num_threads(threads)
    td.use_deterministic_algorithms(False)


@pytest.mark.parametrize("family", OWN)
def test_our_own_routines_and_kernels_give_the_same_bits_for_any_number_of_threads(family):
    assert _that_differ(OWN[family], (1, 3)) == []


@pytest.mark.parametrize("family", ["products", "convolutions"])
def test_with_deterministic_algorithms_all_others_do_too(family):
    td.use_deterministic_algorithms(True)
    assert _that_differ(ALL[family], (1, 3)) == []


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("family", ALL)
def test_numbers_of_threads(family, compiled):
    td.use_deterministic_algorithms(True)
    assert _that_differ(ALL[family], (1, 2, 3, 4, 8), compiled) == []


@pytest.mark.parametrize("compiled", [False, True])
def test_what_was_measured_does_not_choose_then(compiled):
    operands = _floats(640, 384), _floats(384, 256)
    kind = tune.KINDS.index("other")
    td.use_deterministic_algorithms(True)
    found = []
    for own in (0, 1):
        _runtime.force_products(kind, bool(own))
        found.append(_bits(td.matmul, operands, compiled))
    _runtime.force_products(kind, None)
    assert found[0] == found[1]


def test_a_compiled_function_follows_when_it_is_switched_on():
    """What its program prepared for oneDNN is not what our own code needs."""
    x, w = _floats(8, 16, 9, 9), _floats(16, 16, 3, 3)
    step = td.compile(lambda x, w: td.relu(nnf.conv2d(x, w, dilation=2)) * 2)
    plain = step(x, w)
    td.use_deterministic_algorithms(True)
    eager = td.relu(nnf.conv2d(x, w, dilation=2)) * 2
    assert (step(x, w) == eager).all()
    assert np.allclose(plain.numpy(), eager.numpy(), rtol=1e-5, atol=1e-5)


def test_the_setting_can_be_asked_for():
    assert not td.are_deterministic_algorithms_enabled()
    td.use_deterministic_algorithms(True, warn_only=True)
    assert td.are_deterministic_algorithms_enabled()
    td.use_deterministic_algorithms(False)
    assert not td.are_deterministic_algorithms_enabled()
