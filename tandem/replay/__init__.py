"""td.compile(fn, replay=True): calls that run again without their Python code. See replayed.py."""

from tandem.replay.replayed import Replayed

__all__ = ["Replayed"]
