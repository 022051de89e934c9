import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def interrupts():
    """Shells start jobs in the background with SIGINT ignored; tests of Ctrl-C would wait forever."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
