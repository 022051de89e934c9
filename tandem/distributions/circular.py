"""Distributions on the circle."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions import constraints
from tandem.distributions.base import LOG_TWO_PI, Distribution, parameters


class VonMises(Distribution):
    """Angles around loc, the more closely the greater the concentration. Samples lie in [-pi, pi)."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc, concentration, validate_args=None):
        self.loc, self.concentration = parameters(loc, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)

    @property
    def variance(self):
        """The circular variance, 1 - I1(concentration) / I0(concentration)."""
        return 1 - td.special.i1e(self.concentration) / td.special.i0e(self.concentration)

    def log_prob(self, value):
        gap = self._value(value) - self.loc
        # I0(k) = i0e(k) * exp(k)
        return self.concentration * (td.cos(gap) - 1) - LOG_TWO_PI - td.log(td.special.i0e(self.concentration))

    def sample(self, sample_shape=()):
        """By rejection from a wrapped Cauchy distribution (Best and Fisher, 1979), in float64."""
        shape = self.shape_of(sample_shape)
        with td.no_grad():
            loc, k = (p.to(td.float64).expand(shape) for p in (self.loc, self.concentration))
            tau = 1 + td.sqrt(1 + 4 * k * k)
            rho = (tau - td.sqrt(2 * tau)) / (2 * k)
            # The formula cancels for a small concentration: its series there.
            r = td.where(k < 1e-5, 1 / k + k, (1 + rho * rho) / (2 * rho))
            x = td.zeros(shape, dtype=td.float64, device=loc.device)
            done = td.zeros(shape, dtype=td.bool, device=loc.device)
            while not bool(done.all()):
                u1, u2, u3 = td.rand(3, *shape, dtype=td.float64, device=loc.device).unbind(0)
                z = td.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                good = (c * (2 - c) - u2 > 0) | (td.log(c / u2) + 1 - c >= 0)
                angle = td.sign(u3 - 0.5) * td.acos(td.clip(f, -1.0, 1.0))
                x = td.where(good & ~done, angle, x)
                done = done | good
            return td.remainder(x + math.pi + loc, 2 * math.pi).to(self.loc.dtype) - math.pi
