"""Sessions whose results are NumPy arrays."""

import functools
from typing import Any

from tandem import _runtime
from tandem import session as _session
from tandem.errors import ValueRangeError
from tandem.session.nodes import map_leaves


class RunOptions:
    """How to run: timeout_in_ms, after which a run that waits ends."""

    def __init__(self, timeout_in_ms=0, trace_level=0):
        self.timeout_in_ms = timeout_in_ms
        self.trace_level = trace_level


class GPUOptions:
    """Accepted without effect: memory of devices is taken as it is needed, and given back."""

    def __init__(self, per_process_gpu_memory_fraction=0.0, allow_growth=False, visible_device_list=""):
        self.per_process_gpu_memory_fraction = per_process_gpu_memory_fraction
        self.allow_growth = allow_growth
        self.visible_device_list = visible_device_list


class ConfigProto:
    """Settings of a session. allow_soft_placement counts; the others are accepted without effect: td.set_num_threads says how many
    threads there are, and a run is on one device, that of its nodes."""

    def __init__(self, device_count=None, intra_op_parallelism_threads=0, inter_op_parallelism_threads=0,
                 allow_soft_placement=False, log_device_placement=False, gpu_options=None):  # fmt: skip
        self.device_count = dict(device_count or {})
        self.intra_op_parallelism_threads = intra_op_parallelism_threads
        self.inter_op_parallelism_threads = inter_op_parallelism_threads
        self.allow_soft_placement = allow_soft_placement
        self.log_device_placement = log_device_placement
        self.gpu_options = gpu_options or GPUOptions()


class Session(_session.Session):
    """Like td.Session, with arrays as results: Session(graph=None). Of config, allow_soft_placement counts.

    target: a server's (`Session(server.target)`, "grpc://host:port") or a td.distributed.Cluster, on whose tasks the graph runs.
    """

    def __new__(cls, target: Any = "", graph=None, config=None):
        return object.__new__(_on_cluster(cls) if _is_cluster(target) else cls)

    def __init__(self, target: Any = "", graph=None, config=None):
        options = {"soft_placement": config is not None and config.allow_soft_placement}
        if _is_cluster(target):
            options["target"] = _cluster(target)
        super().__init__(target if isinstance(target, _session.Graph) else graph, **options)

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        timeout = options.timeout_in_ms / 1000 if options is not None and options.timeout_in_ms else None
        return map_leaves(_array, super().run(fetches, feed_dict, timeout))

    def partial_run_setup(self, fetches, feeds=None):
        raise AttributeError(
            "runs are whole: there is no partial_run. Make one run that fetches everything, with py_func where Python decides in "
            "between; or several runs that pass values on by feed_dict"
        )

    partial_run = partial_run_setup

    def make_callable(self, fetches, feed_list=None, accept_options=False):
        """A function of what feed_list names, in its order, that runs the fetches."""
        feeds = list(feed_list or [])

        def call(*values, options=None, run_metadata=None):
            if len(values) != len(feeds):
                raise ValueRangeError("make_callable", f"{len(values)} values for {len(feeds)} tensors of feed_list")
            return self.run(fetches, dict(zip(feeds, values, strict=True)), options, run_metadata)

        return call


def _is_cluster(target) -> bool:
    return not isinstance(target, _session.Graph) and target not in (None, "", "local")


def _cluster(target):
    if not isinstance(target, str):
        return target
    from tandem.distributed.cluster.server import cluster_at

    return cluster_at(target)


@functools.cache
def _on_cluster(cls: type) -> type:
    """The session class, for graphs on a cluster."""
    from tandem.distributed.cluster.session import ClusterSession

    return type(cls.__name__, (cls, ClusterSession), {})


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
