"""What leaves Python: functions and modules as graphs that stand by themselves, and files of them."""

from tandem.export.c99 import CProgram, c
from tandem.export.program import save_program
from tandem.export.saved import SavedModel, freeze, load, save
from tandem.export.stablehlo import StableHLO, stablehlo
from tandem.export.trace import Exported, trace

__all__ = [
    "CProgram",
    "Exported",
    "SavedModel",
    "StableHLO",
    "c",
    "freeze",
    "load",
    "save",
    "save_program",
    "stablehlo",
    "trace",
]
