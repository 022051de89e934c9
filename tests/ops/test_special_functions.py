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
