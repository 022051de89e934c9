"""Queues: bounded, shared by threads and by runs of sessions. What blocks lets other threads go on (src/queue).

>>> queue = td.FIFOQueue(10, td.float32, ())
>>> queue.enqueue(1.5)
>>> queue.enqueue_many([2.5, 3.5])
>>> queue.size()
3
>>> queue.dequeue_many(2)
tensor([1.5000, 2.5000])

The same methods build nodes inside `with graph:`, or when they are given tensors of a graph; a run of the node then does what the
method does. A queue is one thing for the whole process: sessions that run nodes of it share what is in it.
"""

from __future__ import annotations

import itertools

from tandem import _runtime, dtypes
from tandem.errors import CancelledError, DeadlineError, DTypeError, QueueClosedError, ShapeError, ValueRangeError
from tandem.graph import ir
from tandem.graph.ir import Type, Value
from tandem.session.build import as_tensor, graph_of
from tandem.session.graph import Graph, SymbolicTensor, default_graph, outside_graphs
from tandem.session.nodes import Host
from tandem.session.unknown import show_shape
from tandem.tensors.constructors import asarray

OK, CLOSED, CANCELLED, TIMED_OUT = range(4)  # Queue::Status
FIFO, SHUFFLE, PRIORITY = range(3)  # Queue::Order
_counter = itertools.count()


class Queue:
    """Base of the queues: rows of one or several tensors, of given dtypes and shapes.

    capacity: how many rows there may be; a producer waits while it is full. dtypes, shapes: of the components of a row; one by
    itself, or lists. A size that is None may differ between rows; without shapes anything goes in, one row at a time comes out.
    names: with names, rows are dicts.
    """

    _order = FIFO
    _padding = False

    def __init__(self, capacity: int, dtypes_, shapes=None, names=None, name: str | None = None,
                 min_after_dequeue: int = 0, seed: int | None = None):  # fmt: skip
        kind = type(self).__name__
        if isinstance(capacity, bool) or not isinstance(capacity, int) or not 1 <= capacity < 2**62:
            raise ValueRangeError(kind, f"capacity is {capacity!r}; it must be a positive number of elements")
        several = isinstance(dtypes_, (list, tuple))
        self.dtypes = [dtypes.as_dtype(d) for d in (dtypes_ if several else [dtypes_])]
        if shapes is None:
            self.shapes = [None] * len(self.dtypes)
        else:
            self.shapes = [
                None if s is None else tuple(s) for s in (shapes if _is_list_of_shapes(shapes, several) else [shapes])
            ]
        for s in self.shapes:
            if s is not None and not all(n is None or (isinstance(n, int) and n >= 0) for n in s):
                raise ShapeError(kind, f"shape {s} is not made of sizes and None")
        if len(self.shapes) != len(self.dtypes):
            raise ValueRangeError(kind, f"{len(self.dtypes)} dtypes and {len(self.shapes)} shapes")
        if not 0 <= min_after_dequeue < capacity:
            raise ValueRangeError(
                kind,
                f"min_after_dequeue is {min_after_dequeue}; it must be from 0 to less than the capacity, {capacity}",
            )
        self.names = None if names is None else list([names] if isinstance(names, str) else names)
        if self.names is not None and len(self.names) != len(self.dtypes):
            raise ValueRangeError(kind, f"{len(self.dtypes)} dtypes and {len(self.names)} names")
        self.name = name or f"{kind}_{next(_counter)}"
        self.capacity = capacity
        self._single = not several and self.names is None
        if seed is None:
            seed = _runtime.default_generator().initial_seed()
        self.min_after_dequeue, self.seed = min_after_dequeue, seed
        self.device = default_graph().current_device  # of a cluster: whose task has it
        self._queue = _runtime.Queue(
            self.name, self.dtypes, [None if s is None else [-1 if n is None else n for n in s] for s in self.shapes],
            self._order, self._padding, capacity, min_after_dequeue, seed % 2**64,
        )  # fmt: skip

    # -- operations

    def enqueue(self, values, timeout: float | None = None, name: str | None = None):
        """Adds a row; waits while the queue is full. DeadlineError after `timeout` seconds."""
        if self._builds(values):
            return self._node("enqueue", values, timeout, name)
        self._check(self._queue.enqueue(self._row(values, "enqueue"), timeout), "enqueue", timeout)
        return None

    def enqueue_many(self, values, timeout: float | None = None, name: str | None = None):
        """Adds as many rows as the first axis of the values is long, in order; waits for room for each."""
        if self._builds(values):
            return self._node("enqueue_many", values, timeout, name)
        self._check(self._queue.enqueue_many(self._row(values, "enqueue_many"), timeout), "enqueue_many", timeout)
        return None

    def dequeue(self, timeout: float | None = None, name: str | None = None):
        """Takes a row out; waits while there is none. QueueClosedError when there never will be."""
        if self._builds():
            return self._node("dequeue", (), timeout, name)
        return self._result(self._queue.dequeue(timeout), "dequeue", timeout)

    def dequeue_many(self, n: int, timeout: float | None = None, name: str | None = None):
        """Takes n rows out, stacked; waits until there are as many. May be more than the capacity."""
        if self._builds(n):
            return self._node("dequeue_many", (), timeout, name, n)
        return self._result(self._queue.dequeue_many(_count(n), False, timeout), "dequeue_many", timeout)

    def dequeue_up_to(self, n: int, timeout: float | None = None, name: str | None = None):
        """Like dequeue_many, but when the queue is closed, those that are left."""
        if self._builds(n):
            return self._node("dequeue_up_to", (), timeout, name, n)
        return self._result(self._queue.dequeue_many(_count(n), True, timeout), "dequeue_up_to", timeout)

    def size(self, name: str | None = None):
        """How many rows there are."""
        return self._node("size", (), None, name) if self._builds() else self._queue.size()

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None):
        """No more rows go in. Producers that wait are still served, unless cancelled; consumers get what is there."""
        if self._builds():
            return self._node("close_and_cancel" if cancel_pending_enqueues else "close", (), None, name)
        self._queue.close(bool(cancel_pending_enqueues))
        return None

    def is_closed(self, name: str | None = None):
        return self._node("is_closed", (), None, name) if self._builds() else self._queue.closed

    @property
    def counts(self) -> dict:
        """Rows that went in and out, how often a thread had to wait for room or for rows, and the most rows there were."""
        return self._queue.counts()

    def __repr__(self):
        return f"<{type(self).__name__} {self.name!r}, {self._queue.size()} of {self.capacity}>"

    # -- rows

    def _builds(self, values=()) -> bool:
        if ir.call_recorder() is not None or isinstance(values, Value):
            return True
        if isinstance(values, (list, tuple)):
            return any(isinstance(v, Value) for v in values)
        return isinstance(values, dict) and any(isinstance(v, Value) for v in values.values())

    def _components(self, values, operation: str) -> list:
        if self.names is not None:
            if not isinstance(values, dict) or set(values) != set(self.names):
                raise ValueRangeError(
                    operation, f"queue {self.name!r} holds dicts with {', '.join(map(repr, self.names))}"
                )
            return [values[n] for n in self.names]
        if self._single and len(self.dtypes) == 1:
            if (
                isinstance(values, (list, tuple))
                and len(values) == 1
                and isinstance(values[0], (Value, _runtime.Tensor))
            ):
                return list(values)
            return [values]
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        if len(values) != len(self.dtypes):
            raise ValueRangeError(
                operation, f"an element of queue {self.name!r} has {len(self.dtypes)} components, not {len(values)}"
            )
        return values

    def _row(self, values, operation: str) -> tuple:
        if self._single and type(values) is _runtime.Tensor:
            return (values,)
        return tuple(
            v if isinstance(v, _runtime.Tensor) else self._convert(v, d, operation)
            for v, d in zip(self._components(values, operation), self.dtypes, strict=True)
        )

    def _convert(self, value, dtype, operation: str):
        if value is None:
            raise DTypeError(operation, f"queue {self.name!r} holds tensors, and is given None")
        made = asarray(value)
        order = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
        if made.dtype is not dtype:
            if order[made.dtype.kind] > order[dtype.kind]:
                raise DTypeError(operation, f"queue {self.name!r} holds {dtype} and is given {made.dtype}")
            made = made.astype(dtype)
        return made

    def _check(self, status: int, operation: str, timeout):
        if status == OK:
            return
        if status == CLOSED and operation.startswith("enqueue"):
            raise QueueClosedError(operation, f"queue {self.name!r} is closed")
        if status == CLOSED:
            raise QueueClosedError(
                operation, f"queue {self.name!r} is closed and has not enough elements ({self._queue.size()} left)"
            )
        if status == TIMED_OUT:
            raise DeadlineError(
                operation,
                f"waited {timeout:g} s for queue {self.name!r}, which holds {self._queue.size()} of {self.capacity} elements",
            )
        raise CancelledError(operation, f"cancelled while it waited for queue {self.name!r}")

    def _result(self, given, operation: str, timeout):
        if isinstance(given, int):
            self._check(given, operation, timeout)
        return self._pack(given)

    def _pack(self, components):
        if self.names is not None:
            return dict(zip(self.names, components, strict=True))
        return components[0] if len(components) == 1 else list(components)

    # -- nodes

    def _node(self, operation: str, values, timeout, name, n=None):
        operands: list = []
        graph = default_graph()
        if operation.startswith("enqueue"):
            components = self._components(values, operation)
            graph = graph_of(*components)
            with outside_graphs():
                components = [
                    v if isinstance(v, (Value, _runtime.Tensor)) else self._convert(v, d, operation)
                    for v, d in zip(components, self.dtypes, strict=True)
                ]
            operands = [as_tensor(graph, v) for v in components]
            self._check_operands(operands, operation)
        if isinstance(n, SymbolicTensor):
            graph = graph_of(n)
            operands = [n]
        elif n is not None:
            n = _count(n)
        types = self._types(graph, operation, n)
        node = graph.add_node(QueueOp(self, operation, timeout, n), operands, types, name or f"{self.name}_{operation}")
        if operation.startswith("dequeue"):
            return self._pack(node.outputs)
        return node.outputs[0] if node.outputs else node

    def _check_operands(self, operands, operation: str):
        first = 1 if operation == "enqueue_many" else 0
        for k, (v, dtype, shape) in enumerate(zip(operands, self.dtypes, self.shapes, strict=True)):
            if v.dtype is not dtype:
                raise DTypeError(
                    operation, f"component {k} is {v.dtype}; queue {self.name!r} holds {dtype} there",
                    fix=f"convert it first: x.astype({dtype})",
                )  # fmt: skip
            given = show_shape(v.type.shape)
            fits = shape is None or (
                len(given) == len(shape) + first
                and all(a is None or b is None or a == b for a, b in zip(given[first:], shape, strict=True))
            )
            if not fits:
                raise ShapeError(
                    operation, f"component {k} is {given}; queue {self.name!r} holds elements of shape {shape}"
                )

    def _types(self, graph: Graph, operation: str, n) -> tuple:
        if operation == "size":
            return (Type(dtypes.int32, ()),)
        if operation == "is_closed":
            return (Type(dtypes.bool_, ()),)
        if not operation.startswith("dequeue"):
            return ()
        made = []
        for dtype, shape in zip(self.dtypes, self.shapes, strict=True):
            if shape is None:
                raise ShapeError(
                    operation, f"queue {self.name!r} was made without shapes, which a graph needs",
                    fix="give shapes=, with None for sizes that differ",
                )  # fmt: skip
            sizes = (
                shape
                if operation == "dequeue"
                else (n if operation == "dequeue_many" and isinstance(n, int) else None, *shape)
            )
            made.append(
                Type(
                    dtype,
                    tuple(graph.symbols.new_unknown(self.name, i) if d is None else d for i, d in enumerate(sizes)),
                )
            )
        return tuple(made)


def _is_list_of_shapes(shapes, several: bool) -> bool:
    return several or (isinstance(shapes, list) and len(shapes) == 1 and isinstance(shapes[0], (list, tuple)))


def _count(n) -> int:
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise DTypeError(None, f"a number of elements is an int, not {type(n).__name__}")
    if n.__index__() < 0:
        raise ValueRangeError(None, f"{n} elements cannot be taken out")
    return n.__index__()


class FIFOQueue(Queue):
    """First in, first out."""

    def __init__(self, capacity: int, dtypes, shapes=None, names=None, name: str | None = None):
        super().__init__(capacity, dtypes, shapes, names, name)


class PaddingFIFOQueue(Queue):
    """First in, first out; dequeue_many fills rows with zeros up to the largest, in axes whose size is None."""

    _padding = True

    def __init__(self, capacity: int, dtypes, shapes, names=None, name: str | None = None):
        if shapes is None:
            raise ShapeError("PaddingFIFOQueue", "shapes must be given, with None for sizes that are filled up")
        super().__init__(capacity, dtypes, shapes, names, name)


class RandomShuffleQueue(Queue):
    """Gives a row at random. Keeps min_after_dequeue rows until it is closed, so that there is something to choose from."""

    _order = SHUFFLE

    def __init__(self, capacity: int, min_after_dequeue: int, dtypes, shapes=None, names=None, seed: int | None = None,
                 name: str | None = None):  # fmt: skip
        super().__init__(capacity, dtypes, shapes, names, name, min_after_dequeue, seed)


class PriorityQueue(Queue):
    """Smallest priority first; equal ones as they came. The priority, an int64, is the first component of each row."""

    _order = PRIORITY

    def __init__(self, capacity: int, types, shapes=None, names=None, name: str | None = None):
        types = list(types) if isinstance(types, (list, tuple)) else [types]
        if shapes is None:
            shapes = [None] * len(types)
        elif not _is_list_of_shapes(shapes, len(types) > 1 or isinstance(shapes, list)):
            shapes = [shapes]
        super().__init__(capacity, [dtypes.int64, *types], [(), *shapes], names, name)


class QueueOp(Host):
    """An operation on a queue, done each time its node runs."""

    blocking = True

    def __init__(self, queue: Queue, operation: str, timeout: float | None, n):
        super().__init__()
        self.queue = queue
        self.operation = operation
        self.name = operation
        self.timeout = timeout
        self.n = n
        self.blocking = operation.startswith(("enqueue", "dequeue"))

    def call(self, node, operands, cancellation) -> list:
        queue, native, operation = self.queue, self.queue._queue, self.operation
        if operation in ("enqueue", "enqueue_many"):
            add = native.enqueue if operation == "enqueue" else native.enqueue_many
            queue._check(add(tuple(operands), self.timeout, cancellation), operation, self.timeout)
            return []
        if operation == "dequeue":
            given = native.dequeue(self.timeout, cancellation)
        elif operation in ("dequeue_many", "dequeue_up_to"):
            n = _count(operands[0].item()) if operands else self.n
            given = native.dequeue_many(n, operation == "dequeue_up_to", self.timeout, cancellation)
        elif operation == "size":
            return [asarray(native.size()).astype(dtypes.int32)]
        elif operation == "is_closed":
            return [asarray(native.closed)]
        else:
            native.close(operation == "close_and_cancel")
            return []
        if isinstance(given, int):
            queue._check(given, operation, self.timeout)
        return given
