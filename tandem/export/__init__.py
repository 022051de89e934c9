"""What leaves Python: functions and modules as graphs that stand by themselves, and files of them."""

from tandem.export.saved import SavedModel, load, save
from tandem.export.trace import Exported, trace

__all__ = ["Exported", "SavedModel", "load", "save", "trace"]
