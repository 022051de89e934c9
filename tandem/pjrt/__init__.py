"""Programs on accelerators behind PJRT's C interface."""

from tandem.pjrt.client import Client, Executable, compile_ahead, open_plugin
from tandem.pjrt.function import PjrtFunction, compile_for

__all__ = ["Client", "Executable", "PjrtFunction", "compile_ahead", "compile_for", "open_plugin"]
