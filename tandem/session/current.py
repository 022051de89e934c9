"""Which session is active in this thread: that of the innermost `with session:`."""

from __future__ import annotations

import threading

from tandem.errors import ValueRangeError

_current = threading.local()


def current_session():
    """The session of the innermost `with session:`."""
    sessions = getattr(_current, "sessions", None)
    if not sessions:
        raise ValueRangeError(
            None, "no session is active here", fix="use `with td.Session() as session:`, or session.run(...)"
        )
    return sessions[-1]


def active_session(graph):
    """The session of the innermost `with session:` that runs this graph, if there is one."""
    return next((s for s in reversed(getattr(_current, "sessions", ())) if s.graph is graph), None)
