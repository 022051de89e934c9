"""Products, distances, integrals, counts and arrangements in PyTorch's spelling."""

import itertools

import numpy as np
import pytest
import scipy.integrate
import scipy.spatial.distance as D

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(5)
NAN = float("nan")


def normal(*shape):
    return RNG.normal(size=shape)


def test_products():
    b1, b2 = normal(2, 3, 4), normal(2, 4, 2)
    check_op(td.addbmm, lambda x, a, b: 0.5 * x + 2 * np.einsum("bij,bjk->ik", a, b), inputs=[(normal(3, 2), b1, b2)],
             kwargs={"beta": 0.5, "alpha": 2})  # fmt: skip
    check_op(td.addr, lambda x, a, b: x + np.outer(a, b), inputs=[(normal(3, 2), normal(3), normal(2))])
    check_op(td.inner, np.inner, inputs=[(normal(3, 4), normal(2, 4)), (normal(3), np.array(2.0))])
    check_op(td.kron, np.kron, inputs=[(normal(2, 3), normal(2, 2)), (normal(2), normal(2, 3))])
    with pytest.raises(td.errors.ShapeError, match="addbmm"):
        td.addbmm(td.ones(3, 2), td.ones(2, 3, 4), td.ones(3, 4, 2))
    with pytest.raises(td.errors.ShapeError, match="inner"):
        td.inner(td.ones(3), td.ones(4))
    x, y = td.ones(2, 2), td.full((1, 3), 2.0)
    expected = np.block([[np.ones((2, 2)), np.zeros((2, 3))], [np.zeros((1, 2)), np.full((1, 3), 2.0)]])
    assert_close(td.block_diag(x, y), expected)
    assert td.block_diag().shape == (1, 0)
    mats = [normal(*s) for s in ((2, 5), (5, 3), (3, 7), (7, 1))]
    assert_close(td.chain_matmul(*[td.tensor(m) for m in mats]), np.linalg.multi_dot(mats))
    z = td.ones(3, 2)
    assert z.addbmm_(td.ones(2, 3, 4), td.ones(2, 4, 2)) is z and float(z[0, 0]) == 9
    assert float(td.zeros(2, 2).addr_(td.ones(2), td.ones(2)).sum()) == 4


@pytest.mark.parametrize(
    ("p", "metric"), [(1.0, "cityblock"), (2.0, "euclidean"), (np.inf, "chebyshev"), (3.0, "minkowski")]
)
def test_distances(p, metric):
    extra = {"p": 3} if metric == "minkowski" else {}
    reference = lambda a, b: D.cdist(a, b, metric, **extra)
    check_op(td.cdist, reference, inputs=[(normal(3, 4), normal(2, 4))], kwargs={"p": p})
    check_op(td.pdist, lambda a: D.pdist(a, metric, **extra), inputs=[(normal(5, 3),)], kwargs={"p": p}, deferred=False)


def test_distances_by_products_and_of_equal_points():
    a, b = normal(30, 4), normal(28, 4)
    assert_close(td.cdist(td.tensor(a), td.tensor(b)), D.cdist(a, b))
    x = td.tensor(np.zeros((2, 3)), requires_grad=True)
    td.cdist(x, x).sum().backward()
    assert not x.grad.numpy().any()
    assert_close(td.cdist(td.tensor(a), td.tensor(b), p=0), np.full((30, 28), 4.0))
    with pytest.raises(td.errors.ShapeError, match="cdist"):
        td.cdist(td.ones(2, 3), td.ones(2, 4))


def test_dist_and_renorm():
    check_op(
        td.dist,
        lambda a, b: (np.abs(a - b) ** 3).sum() ** (1 / 3),
        inputs=[(normal(3, 4), normal(3, 4))],
        kwargs={"p": 3},
    )
    x = normal(3, 4)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    reference = np.where(norms > 1.5, x * (1.5 / (norms + 1e-7)), x)
    check_op(td.renorm, lambda a: reference, inputs=[(x,)], kwargs={"p": 2, "axis": 0, "maxnorm": 1.5})
    t = td.tensor(x)
    assert t.renorm_(2, 0, 1.5) is t
    assert_close(t, reference)


def test_integrals_and_slopes():
    y, x = normal(3, 5), np.sort(normal(5))
    check_op(td.trapezoid, lambda y: np.trapezoid(y, axis=1), inputs=[(y,)])
    check_op(td.trapezoid, lambda y, x: np.trapezoid(y, x, axis=1), inputs=[(y, x)])
    check_op(td.cumulative_trapezoid, lambda y, x: scipy.integrate.cumulative_trapezoid(y, x), inputs=[(y, x)])
    assert_close(td.trapz(td.tensor(y), dx=0.5, dim=0), np.trapezoid(y, dx=0.5, axis=0))
    for edge_order in (1, 2):
        got = td.gradient(td.tensor(y), spacing=0.5, edge_order=edge_order)
        for ours, theirs in zip(got, np.gradient(y, 0.5, edge_order=edge_order), strict=True):
            assert_close(ours, theirs)
        check_op(lambda a, e=edge_order: td.gradient(a, spacing=(td.tensor(x),), axis=1, edge_order=e)[0],
                 lambda a, e=edge_order: np.gradient(a, x, axis=1, edge_order=e), inputs=[(y,)], names=["gradient"],
                 deferred=False)  # fmt: skip


def test_covariances():
    x, f, a = normal(3, 6), RNG.integers(1, 4, 6), RNG.uniform(0.5, 2, 6)
    check_op(td.cov, np.cov, inputs=[(x,)])
    assert_close(
        td.cov(td.tensor(x), correction=0, fweights=td.tensor(f), aweights=td.tensor(a)),
        np.cov(x, ddof=0, fweights=f, aweights=a),
    )
    assert_close(td.cov(td.tensor(x), fweights=td.tensor(f), aweights=td.tensor(a)), np.cov(x, fweights=f, aweights=a))
    assert_close(td.cov(td.tensor(x[0])), np.cov(x[0]))
    check_op(td.corrcoef, np.corrcoef, inputs=[(x,)], atol=1e-10)


def test_counts():
    k = RNG.integers(0, 6, 40)
    assert_close(td.bincount(td.tensor(k), minlength=9), np.bincount(k, minlength=9))
    w = normal(40)
    weights = td.tensor(w, requires_grad=True)
    got = td.bincount(td.tensor(k), weights)
    assert_close(got, np.bincount(k, w))
    (got * td.tensor(np.arange(got.shape[0], dtype=float))).sum().backward()
    assert_close(weights.grad, k.astype(float))
    assert td.bincount(td.zeros(0, dtype=td.int64)).shape == (0,)
    with pytest.raises(td.errors.ValueRangeError, match="contains -1"):
        td.bincount(td.tensor([-1, 2]))
    x = normal(50)
    check_op(td.histc, lambda a: np.histogram(a, 7)[0], inputs=[(x,)], kwargs={"bins": 7}, grad=False)
    check_op(
        td.histc,
        lambda a: np.histogram(a, 4, (-1, 1))[0],
        inputs=[(x,)],
        kwargs={"bins": 4, "min": -1, "max": 1},
        grad=False,
    )
    edges = np.array([-2.0, -0.5, 0.1, 3.0])
    weight = RNG.uniform(size=50)
    for bins, options in (
        (6, {}),
        (6, {"range": (-1.0, 1.0)}),
        (edges, {}),
        (edges, {"density": True}),
        (5, {"weight": weight}),
    ):
        ours = td.histogram(td.tensor(x), bins if isinstance(bins, int) else td.tensor(bins),
                            **{k: td.tensor(v) if k == "weight" else v for k, v in options.items()})  # fmt: skip
        theirs = np.histogram(x, bins, **{"weights" if k == "weight" else k: v for k, v in options.items()})
        assert_close(ours.hist, theirs[0])
        assert_close(ours.bin_edges, theirs[1])
    points = normal(40, 2)
    ours, theirs = td.histogramdd(td.tensor(points), [3, 4]), np.histogramdd(points, [3, 4])
    assert_close(ours.hist, theirs[0])
    for a, b in zip(ours.bin_edges, theirs[1], strict=True):
        assert_close(a, b)


def test_integers_and_parts_of_floats():
    x, y = RNG.integers(-40, 40, (4, 5)), RNG.integers(-40, 40, (4, 5))
    check_op(td.gcd, np.gcd, inputs=[(x, y), (x.astype("int8"), y.astype("int8")), (x, np.array(6))])
    check_op(td.lcm, np.lcm, inputs=[(x, y)])
    assert td.tensor([4]).gcd_(6).item() == 2 and td.tensor([4]).lcm_(6).item() == 12
    with pytest.raises(td.errors.DTypeError, match="gcd"):
        td.gcd(td.ones(2), td.ones(2))
    v = np.array([8.0, -0.3, 0.0, 1e-310, 3e300])
    mantissa, exponent = td.frexp(td.tensor(v))
    assert_close(mantissa, np.frexp(v)[0])
    assert_close(exponent, np.frexp(v)[1])
    check_op(td.ldexp, np.ldexp, inputs=[(normal(3), np.array([2, -3, 0]))])
    check_op(
        lambda a: td.frexp(a)[0], lambda a: np.frexp(a)[0], inputs=[(np.array([0.7, 3.1, -5.2]),)], names=["frexp"]
    )
    check_op(td.heaviside, np.heaviside, inputs=[(np.array([-1.0, 0.5, 2.0]), normal(3))])
    assert td.heaviside(td.zeros(1), 0.3).item() == pytest.approx(0.3)
    check_op(td.rsub, lambda a, b: b - a, inputs=[(normal(3), normal(3))])
    assert_close(td.sgn(td.tensor([-2.0, 0.0])), np.array([-1.0, 0.0]))


def test_arrangements():
    a, b = np.arange(3), np.arange(2) + 7
    assert_close(td.cartesian_prod(td.tensor(a), td.tensor(b)), np.array(list(itertools.product(a, b))))
    for r, replacement in ((2, False), (2, True), (3, False), (3, True)):
        choose = itertools.combinations_with_replacement if replacement else itertools.combinations
        got = td.combinations(td.arange(4), r, replacement)
        assert_close(got, np.array(list(choose(range(4), r))))
    assert td.combinations(td.arange(2), 3).shape == (0, 3)
    x = normal(3, 4)
    check_op(td.diagflat, lambda a: np.diagflat(a, 1), inputs=[(normal(2, 2),)], kwargs={"offset": 1})
    check_op(td.fliplr, np.fliplr, inputs=[(x,)])
    check_op(td.flipud, np.flipud, inputs=[(x,)])
    check_op(td.vander, np.vander, inputs=[(normal(3),), (np.array([1, 2, 5]),)])
    check_op(td.vander, lambda a: np.vander(a, 4, True), inputs=[(normal(3),)], kwargs={"N": 4, "increasing": True})
    for ours, theirs in zip(
        td.unravel_index(td.tensor([5, 11]), (3, 4)), np.unravel_index([5, 11], (3, 4)), strict=True
    ):
        assert_close(ours, theirs)
    with pytest.raises(td.errors.ValueRangeError, match="beyond the 12 elements"):
        td.unravel_index(td.tensor([12]), (3, 4))
    i = RNG.integers(0, 3, (2, 4))
    check_op(td.take_along_dim, lambda a, i: np.take_along_axis(a, i, 0), inputs=[(x, i)], kwargs={"axis": 0})
    assert_close(td.take_along_dim(td.tensor(x), td.tensor([[5]])), x.reshape(-1)[[5]])
    expected = x.copy()
    np.fill_diagonal(expected, [7, 8, 9])
    placed = lambda a, d: np.where(np.eye(3, 4), np.pad(np.diag(d), ((0, 0), (0, 1))), a)
    check_op(td.diagonal_scatter, placed, inputs=[(x, normal(3))],
             deferred=False)  # fmt: skip
    assert_close(td.as_strided_scatter(td.tensor(x), td.tensor([7.0, 8, 9]).double(), (3,), (5,)), expected)
    t = td.tensor(x)
    assert t.fill_diagonal_(2.0) is t
    np.fill_diagonal(expected, 2.0)
    assert_close(t, expected)


def test_segments():
    x = normal(6, 2)
    lengths = np.array([2, 0, 3, 1])
    parts = np.split(x, np.cumsum(lengths)[:-1])
    for kind, fold in (("sum", np.sum), ("prod", np.prod)):
        check_op(lambda a, kind=kind: td.segment_reduce(a, kind, lengths=td.tensor(lengths)),
                 lambda a, fold=fold: np.stack([fold(p, 0) for p in parts]),
                 inputs=[(x,)], names=["segment_reduce"], deferred=False)  # fmt: skip
    got = td.segment_reduce(td.tensor(x), "max", offsets=td.tensor([0, 2, 2, 5, 6]), initial=-9.0)
    assert_close(got, np.stack([np.max(np.vstack([p, [[-9, -9]]]), 0) for p in parts]))
    got = td.segment_reduce(td.tensor(x), "mean", lengths=td.tensor(lengths)).numpy()
    assert np.isnan(got[1]).all()
    np.testing.assert_allclose(got[[0, 2, 3]], [parts[i].mean(0) for i in (0, 2, 3)])
    with pytest.raises(td.errors.ShapeError, match="add up to 3"):
        td.segment_reduce(td.tensor(x), "sum", lengths=td.tensor([1, 2]))


def test_positions_of_a_fixed_number():
    x = np.array([[0, 3], [4, 0], [5, 6]])
    found = np.argwhere(x)
    for size in (2, 4, 6):
        expected = np.full((size, 2), -1)
        expected[: min(size, 4)] = found[:size]
        check_op(
            lambda a, n=size: td.nonzero_static(a, size=n),
            lambda a, e=expected: e,
            inputs=[(x,)],
            names=["nonzero_static"],
        )


def test_windows():
    import scipy.signal.windows as W

    for name, reference in (
        ("hann_window", W.hann),
        ("hamming_window", W.hamming),
        ("blackman_window", W.blackman),
        ("bartlett_window", W.bartlett),
    ):
        assert_close(getattr(td, name)(8, dtype=td.float64), reference(8, sym=False), atol=1e-12)
        assert_close(getattr(td, name)(7, False, dtype=td.float64), reference(7), atol=1e-12)
    assert_close(td.kaiser_window(8, beta=4.0, dtype=td.float64), W.kaiser(8, 4.0, sym=False))
    assert td.hann_window(0).shape == (0,) and td.hann_window(1).item() == 1.0
