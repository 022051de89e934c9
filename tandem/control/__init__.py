"""Control flow decided by values of tensors: eagerly plain Python, in compiled functions and graphs part of the program."""

from tandem.control.associative import associative_scan
from tandem.control.branches import cond, switch_case
from tandem.control.loops import fori_loop, map, scan, while_loop

__all__ = ["associative_scan", "cond", "fori_loop", "map", "scan", "switch_case", "while_loop"]
