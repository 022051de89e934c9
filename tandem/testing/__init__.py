"""Checks for tests: assert_close, gradcheck, gradgradcheck, make_tensor; pytest_plugin has the first as fixtures."""

from tandem.testing.closeness import assert_allclose, assert_close
from tandem.testing.gradients import GradcheckError, gradcheck, gradgradcheck
from tandem.testing.making import make_tensor

__all__ = ["GradcheckError", "assert_allclose", "assert_close", "gradcheck", "gradgradcheck", "make_tensor"]
