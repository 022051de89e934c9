"""Made by tools/write_stubs.py: `make stubs`."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from tandem import *  # noqa: F403

def __getattr__(name: str) -> Any: ...
