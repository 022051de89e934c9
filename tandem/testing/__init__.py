"""Checks for tests: assert_close, gradcheck, gradgradcheck; pytest_plugin has them as fixtures."""

from tandem.testing.closeness import assert_close
from tandem.testing.gradients import GradcheckError, gradcheck, gradgradcheck

__all__ = ["GradcheckError", "assert_close", "gradcheck", "gradgradcheck"]
