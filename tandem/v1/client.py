"""Sessions whose results are NumPy arrays."""

from tandem import _runtime
from tandem import session as _session
from tandem.session.nodes import map_leaves


class RunOptions:
    """How to run: timeout_in_ms, after which a run that waits ends."""

    def __init__(self, timeout_in_ms=0, trace_level=0):
        self.timeout_in_ms = timeout_in_ms
        self.trace_level = trace_level


class Session(_session.Session):
    """Like td.Session, with arrays as results: Session(graph=None)."""

    def __init__(self, target="", graph=None, config=None):
        super().__init__(target if isinstance(target, _session.Graph) else graph)

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        timeout = options.timeout_in_ms / 1000 if options is not None and options.timeout_in_ms else None
        return map_leaves(_array, super().run(fetches, feed_dict, timeout))


def _array(x):
    if not isinstance(x, _runtime.Tensor):
        return x
    made = x.numpy()
    return made[()] if made.ndim == 0 else made


class InteractiveSession(Session):
    """A session that is the current one from the start: tensor.eval() uses it."""

    def __init__(self, target="", graph=None, config=None):
        super().__init__(target, graph, config)
        self.__enter__()

    def close(self):
        self.__exit__()
        super().close()
