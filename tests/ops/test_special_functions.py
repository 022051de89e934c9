"""Special functions against SciPy's."""

import numpy as np
import pytest
import scipy.special as S

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(11)
X = RNG.uniform(-8, 8, (3, 4))
POSITIVE = RNG.uniform(0.2, 9, (3, 4))

UNARY = {
    "bessel_j0": (S.j0, X), "bessel_j1": (S.j1, X), "bessel_y0": (S.y0, POSITIVE), "bessel_y1": (S.y1, POSITIVE),
    "i0": (S.i0, X / 2),
    "i0e": (S.i0e, X), "i1": (S.i1, X / 2), "i1e": (S.i1e, X), "modified_bessel_k0": (S.k0, POSITIVE),
    "modified_bessel_k1": (S.k1, POSITIVE), "scaled_modified_bessel_k0": (S.k0e, POSITIVE),
    "scaled_modified_bessel_k1": (S.k1e, POSITIVE), "airy_ai": (lambda x: S.airy(x)[0], X),
    "spherical_bessel_j0": (lambda x: S.spherical_jn(0, x), X), "sinc": (np.sinc, X), "erfcx": (S.erfcx, X / 3),
    "log_ndtr": (S.log_ndtr, X), "ndtr": (S.ndtr, X / 3), "ndtri": (S.ndtri, RNG.uniform(0.02, 0.98, (3, 4))),
    "entr": (S.entr, POSITIVE), "gammaln": (S.gammaln, POSITIVE), "psi": (S.psi, POSITIVE),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(name):
    reference, x = UNARY[name]
    check_op(getattr(td.special, name), reference, inputs=[(x,)], names=[name], rtol=1e-11, atol=1e-14)
    assert_close(
        getattr(td.special, name)(td.tensor(x.astype("float32"))), reference(x.astype("float32")), rtol=1e-5, atol=1e-6
    )


FAR = np.array([0.0, -0.0, 1e-300, 1e-8, 30.0, 200.0, 700.0, 1e5, -30.0, -200.0, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("name", ["i0e", "i1e", "log_ndtr", "erfcx", "ndtr", "modified_bessel_k0", "modified_bessel_k1",
                                  "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "entr"])  # fmt: skip
def test_functions_far_out(name):
    reference = UNARY[name][0]
    with np.errstate(all="ignore"):
        assert_close(getattr(td.special, name)(td.tensor(FAR)), reference(FAR), rtol=1e-12, atol=0)


def test_airy_and_bessel_far_out():
    x = np.array([-90.0, -25.0, -10.0, -2.0, 0.0, 2.0, 10.0, 25.0])
    assert_close(td.special.airy_ai(td.tensor(x)), S.airy(x)[0], rtol=1e-10, atol=1e-13)
    for n in range(2, 5):  # only derivatives reach these orders
        for kind, reference in (("i_scaled", S.ive), ("k_scaled", S.kve), ("j", S.jv)):
            y = np.array([0.01, 0.5, 3.0, 8.0, 60.0, 900.0])
            got = BESSEL(td.tensor(y), kind, n)
            assert_close(got, reference(n, y), rtol=1e-11, atol=1e-13)
        assert_close(BESSEL(td.tensor(y), "spherical_j", n), S.spherical_jn(n, y), rtol=1e-9, atol=1e-13)


@td.ops.define.op(hidden=True)
def BESSEL(x: "Tensor", kind, n):  # noqa: F821
    return td.ops.Bessel(kind, n)(x)


def test_incomplete_gamma_functions():
    a = RNG.uniform(0.3, 6, (3, 4))
    x = RNG.uniform(0.1, 9, (3, 4))
    check_op(td.igamma, S.gammainc, inputs=[(a, x)], rtol=1e-11)
    check_op(td.igammac, S.gammaincc, inputs=[(a, x)], rtol=1e-11)
    # a large, at and beside the bend; and the ends
    a = np.array([200.0, 200.0, 3000.0, 3000.0, 1e-3, 0.0, 2.0, 2.0, np.inf, 2.0, -1.0])
    x = np.array([180.0, 260.0, 2900.0, 3100.0, 5.0, 1.0, 0.0, np.inf, 1.0, 800.0, 1.0])
    for ours, theirs in ((td.special.gammainc, S.gammainc), (td.special.gammaincc, S.gammaincc)):
        assert_close(ours(td.tensor(a), td.tensor(x)), theirs(a, x), rtol=1e-9, atol=1e-300)


def test_zeta_and_beta():
    s, q = RNG.uniform(1.2, 9, (3, 4)), RNG.uniform(0.2, 9, (3, 4))
    check_op(td.special.zeta, S.zeta, inputs=[(s, q)], names=["zeta"], rtol=1e-9)
    assert_close(td.special.zeta(td.tensor([1.0, 0.5, 30.0, 3.0, 2.5]), td.tensor([2.0, 1.0, 1.0, -2.0, -0.5])),
                 np.array([np.inf, np.nan, S.zeta(30.0, 1.0), np.inf, np.nan]), rtol=1e-6)  # fmt: skip
    slope = td.grad(td.special.zeta)
    known = [-0.9375482543158438, -0.1981262428856368, -0.0689112658961254]  # of Riemann's, at 2, 3, 4
    for x, expected in zip((2.0, 3.0, 4.0), known, strict=True):
        assert_close(
            slope(td.tensor(x, dtype=td.float64), td.tensor(1.0, dtype=td.float64)), np.array(expected), rtol=1e-9
        )
    x = td.tensor(2.5, dtype=td.float64)
    for q in (0.3, 7.0, 40.0):  # the series itself, with its tail as an integral
        terms = np.arange(2_000_000) + q
        end = terms[-1] + 0.5
        tail = end**-1.5 * (np.log(end) / 1.5 + 1 / 1.5**2)
        expected = -(np.sum(np.log(terms) * terms**-2.5) + tail)
        assert_close(slope(x, td.tensor(q, dtype=td.float64)), np.array(expected), rtol=1e-9)
    f = td.special.zeta
    for _ in range(9):
        f = td.grad(f)
    with pytest.raises(td.errors.AutogradError, match="derivative by x is not offered"):
        f(td.tensor(2.0), td.tensor(1.0))
    check_op(td.special.beta, S.beta, inputs=[(s, q)], rtol=1e-9, names=["beta"])
    check_op(td.special.betaln, S.betaln, inputs=[(s, q)], rtol=1e-9, names=["betaln"])


def test_mvlgamma_and_xlog1py():
    x = RNG.uniform(2, 5, (3, 4))
    check_op(td.mvlgamma, np.vectorize(lambda v: S.multigammaln(v, 3)), inputs=[(x,)], kwargs={"p": 3})
    with pytest.raises(td.errors.ValueRangeError, match="p is 0"):
        td.mvlgamma(td.ones(1), 0)
    check_op(td.special.xlog1py, S.xlog1py, inputs=[(X, POSITIVE)], names=["xlog1py"])
    assert_close(td.special.xlog1py(td.tensor([0.0, 0.0]), td.tensor([-1.0, np.nan])), np.array([0.0, np.nan]))


POLYNOMIALS = {
    "chebyshev_polynomial_t": S.eval_chebyt, "chebyshev_polynomial_u": S.eval_chebyu,
    "chebyshev_polynomial_v": lambda n, x: np.cos((n + 0.5) * np.arccos(x)) / np.cos(0.5 * np.arccos(x)),
    "chebyshev_polynomial_w": lambda n, x: np.sin((n + 0.5) * np.arccos(x)) / np.sin(0.5 * np.arccos(x)),
    "shifted_chebyshev_polynomial_t": S.eval_sh_chebyt, "shifted_chebyshev_polynomial_u": S.eval_sh_chebyu,
    "shifted_chebyshev_polynomial_v": lambda n, x: POLYNOMIALS["chebyshev_polynomial_v"](n, 2 * x - 1),
    "shifted_chebyshev_polynomial_w": lambda n, x: POLYNOMIALS["chebyshev_polynomial_w"](n, 2 * x - 1),
    "hermite_polynomial_h": S.eval_hermite, "hermite_polynomial_he": S.eval_hermitenorm, "laguerre_polynomial_l": S.eval_laguerre,
    "legendre_polynomial_p": S.eval_legendre,
}  # fmt: skip


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name):
    x = RNG.uniform(0.05, 0.95, (3, 4))
    n = RNG.integers(0, 7, (3, 4))
    function = getattr(td.special, name)
    check_op(
        function,
        lambda x, n: POLYNOMIALS[name](n, x),
        inputs=[(x, n)],
        names=[name],
        rtol=1e-10,
        atol=1e-12,
        test_layouts=False,
    )
    assert_close(function(td.tensor(x), -1), np.zeros_like(x))


def test_the_namespace_lists_its_functions():
    for name in td.special.__all__:
        assert callable(getattr(td.special, name)) and getattr(td.special, name).__doc__


TRANSFORMED = {
    "bessel_j1": td.special.bessel_j1, "i1e": td.special.i1e, "ndtri": lambda x: td.special.ndtri(td.sigmoid(x)),
    "igamma": lambda x: td.igamma(td.exp(x), td.exp(x) + 0.3), "zeta": lambda x: td.special.zeta(3.0, td.exp(x)),
    "legendre": lambda x: td.special.legendre_polynomial_p(x, td.tensor([3, 2, 4, 1])),
    "logcumsumexp": lambda x: td.logcumsumexp(x, -1),
    "cummax": lambda x: td.cummax(x, -1).values, "cdist": lambda x: td.cdist(x.reshape(2, 2), x.reshape(2, 2) + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMED)
def test_forward_mode_and_batches(name):
    f, x, v = TRANSFORMED[name], td.tensor(RNG.normal(size=(3, 4))), td.tensor(RNG.normal(size=4))
    _, moved = td.jvp(f, (x[0],), (v,))
    numeric = (f(x[0] + v * 1e-6) - f(x[0] - v * 1e-6)) / 2e-6
    assert_close(moved, numeric.numpy(), rtol=1e-5, atol=1e-7)
    assert_close(td.vmap(f)(x), td.stack([f(row) for row in x]).numpy(), rtol=1e-12)


@pytest.mark.parametrize("n", [2**40, 2**21, 1e30, float("inf")])
def test_polynomials_of_degrees_that_would_never_end_are_refused(n):
    for compiled in (False, True):
        f = lambda x, n: td.special.legendre_polynomial_p(x, n)
        f = td.compile(f) if compiled else f
        for degree in (n, td.tensor([2.0, n])):
            with pytest.raises(td.ValueRangeError, match="degrees up to 1048576 are computed"):
                f(td.tensor([0.5, 0.25], dtype=td.float64), degree).tolist()
    assert td.special.chebyshev_polynomial_t(td.tensor(1.0), 1000.0).item() == 1
