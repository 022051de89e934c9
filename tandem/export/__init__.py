"""What leaves Python: functions and modules as graphs that stand by themselves."""

from tandem.export.trace import Exported, trace

__all__ = ["Exported", "trace"]
