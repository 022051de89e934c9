"""Queues whose operations always build nodes, with the classic signatures."""

from tandem.session import queues as _queues


class _Building:
    """Operations of a queue as nodes of the default graph, or of the graph that the values belong to."""

    def _builds(self, values=()) -> bool:
        return True

    def enqueue(self, vals, name=None):
        return super().enqueue(vals, name=name)

    def enqueue_many(self, vals, name=None):
        return super().enqueue_many(vals, name=name)

    def dequeue(self, name=None):
        return super().dequeue(name=name)

    def dequeue_many(self, n, name=None):
        return super().dequeue_many(n, name=name)

    def dequeue_up_to(self, n, name=None):
        return super().dequeue_up_to(n, name=name)


class FIFOQueue(_Building, _queues.FIFOQueue):
    def __init__(self, capacity, dtypes, shapes=None, names=None, shared_name=None, name=None):
        super().__init__(capacity, dtypes, shapes, names, shared_name or name)


class PaddingFIFOQueue(_Building, _queues.PaddingFIFOQueue):
    def __init__(self, capacity, dtypes, shapes, names=None, shared_name=None, name=None):
        super().__init__(capacity, dtypes, shapes, names, shared_name or name)


class RandomShuffleQueue(_Building, _queues.RandomShuffleQueue):
    def __init__(
        self, capacity, min_after_dequeue, dtypes, shapes=None, names=None, seed=None, shared_name=None, name=None
    ):
        super().__init__(capacity, min_after_dequeue, dtypes, shapes, names, seed, shared_name or name)


class PriorityQueue(_Building, _queues.PriorityQueue):
    def __init__(self, capacity, types, shapes=None, names=None, shared_name=None, name=None):
        super().__init__(capacity, types, shapes, names, shared_name or name)
