"""Errors under their classic names."""

from tandem.errors import CancelledError
from tandem.errors import DeadlineError as DeadlineExceededError
from tandem.errors import QueueClosedError as OutOfRangeError
from tandem.errors import TandemError as OpError
from tandem.errors import ValueRangeError as InvalidArgumentError

__all__ = ["CancelledError", "DeadlineExceededError", "InvalidArgumentError", "OpError", "OutOfRangeError"]
