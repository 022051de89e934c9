"""Special functions under the names of torch.special and scipy.special: td.special.gammaln, td.special.i0e, ..."""

from tandem.ops import (
    airy_ai,
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    beta,
    betaln,
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    digamma,
    entr,
    erf,
    erfc,
    erfcx,
    erfinv,
    exp2,
    expit,
    expm1,
    hermite_polynomial_h,
    hermite_polynomial_he,
    i0,
    i0e,
    i1,
    i1e,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    log1p,
    log_ndtr,
    log_softmax,
    logit,
    logsumexp,
    modified_bessel_k0,
    modified_bessel_k1,
    ndtr,
    ndtri,
    polygamma,
    round,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
    sinc,
    softmax,
    spherical_bessel_j0,
    xlog1py,
    xlogy,
    zeta,
)
from tandem.ops import igamma as gammainc
from tandem.ops import igammac as gammaincc
from tandem.ops import lgamma as gammaln
from tandem.ops import mvlgamma as multigammaln

psi = digamma
modified_bessel_i0, modified_bessel_i1 = i0, i1

__all__ = sorted(name for name in dir() if not name.startswith("_"))
