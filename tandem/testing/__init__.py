"""Checks for tests: assert_close, gradcheck, gradgradcheck. pytest offers them as fixtures of these names."""

from tandem.testing.closeness import assert_close
from tandem.testing.gradients import GradcheckError, gradcheck, gradgradcheck

__all__ = ["GradcheckError", "assert_close", "gradcheck", "gradgradcheck"]
