"""What the tasks of a cluster reach: computing alone and all at once, and passing tensors on."""

from __future__ import annotations

import time

from tandem.distributed.placer.costs import PlacementCosts
from tandem.distributed.topology import DeviceModel, Link
from tandem.dtypes import float32
from tandem.errors import ValueRangeError
from tandem.session.build import Variable, device, global_variables_initializer, placeholder
from tandem.session.graph import Graph
from tandem.session.session import Session
from tandem.tensors.constructors import ones

_SIDE, _DEPTH = 512, 6  # of products that run at full speed
_SMALL, _LARGE = 16, 1 << 19  # elements of tensors that cross
_MEMORY = 8e9


def measure_cluster(cluster, tasks: list[str] | None = None, repeats: int = 5) -> PlacementCosts:
    """Costs on the tasks of a cluster, measured in a few seconds: rates of products and memory on one of them, how much of that is
    left when all compute at once, and the link between two.

    >>> cluster = td.distributed.Cluster({"worker": 2}, engine="threads")
    >>> costs = td.distributed.measure_cluster(cluster)
    >>> cluster.close()
    >>> costs.link(0, 1).bandwidth > 1e6
    True
    """
    tasks = list(tasks or cluster.tasks)
    if not tasks:
        raise ValueRangeError("measure_cluster", "there are no tasks")
    with Graph() as graph:
        start = placeholder(float32, (), name="start")
        chains, sums, small, large = [], [], [], []
        for k, task in enumerate(tasks):
            with device(task):
                w = Variable(ones(_SIDE, _SIDE) / _SIDE, name=f"measure/{k}/w")
                wide = Variable(ones(_LARGE), name=f"measure/{k}/wide")
                y = w * start
                for _ in range(_DEPTH):
                    y = y @ w
                chains.append(y.sum())
                sums.append((wide * start).sum())
        if len(tasks) > 1:
            with device(tasks[0]):
                few, many = Variable(ones(_SMALL), name="measure/few"), Variable(ones(_LARGE), name="measure/many")
                sent = [few * start, many * start]
            with device(tasks[1]):
                small, large = (v[:1].sum() for v in sent)
            with device(tasks[0]):
                kept = [v[:1].sum() for v in sent]
        init = global_variables_initializer()
    session = Session(graph, target=cluster)
    session.run(init)
    least = lambda fetches: _least(lambda: session.run(fetches, {start: 1.0}), repeats)
    empty = least([sums[0]])  # what a step costs at all, with one pass over memory
    alone, together = least([chains[0]]), least(chains)
    link = Link(1e9)
    if len(tasks) > 1:
        step, crossing = least([small]) - least([kept[0]]), least([large]) - least([kept[1]])
        link = Link(_LARGE * 4 / max(crossing - step, 1e-6), max(step, 1e-6))
    products = max(alone - empty, 1e-9)
    model = DeviceModel(2.0 * _DEPTH * _SIDE**3 / products, 8.0 * _LARGE / max(empty, 1e-9), _MEMORY)
    share = min(1.0, products / max(together - empty, 1e-9)) if len(tasks) > 1 else 1.0
    return PlacementCosts([model] * len(tasks), link, together=share)


def _least(call, repeats: int) -> float:
    found = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return min(found[2:])
