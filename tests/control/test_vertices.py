"""Vertex programs in deferred graphs: the same as eagerly, with gradients of inputs, variables and what is fed."""

import threading

import numpy as np
import pytest

import tandem as td
from tandem import nn

STRUCTURE = td.Structure.from_parents([2, 2, 5, 4, 5, -1, 7, -1])


def cell(w, u):
    @td.vertex
    def program(children, x):
        h, c = children
        gate = td.sigmoid(x @ w + h.sum(0) @ u)
        c = gate * td.tanh(x) + (1 - gate) * c.sum(0)
        return td.tanh(c), c, gate.sum()

    return program


def arrays():
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in ((8, 4), (4, 4), (4, 4))]


def test_values_and_gradients_in_a_session():
    x, w, u = arrays()
    graph = td.Graph()
    with graph:
        fed = td.placeholder(td.float32, (None, 4))
        weights = [td.Variable(w), td.Variable(u)]
        h, _, out = cell(*weights)(STRUCTURE, fed, state=(td.zeros(4), td.zeros(4)))
        loss = (h**2).sum() + out.sum()
        fetched = [h, out, loss, *td.gradients(loss, [fed, *weights])]
        start = td.global_variables_initializer()
        update = [v.assign(v - 0.1 * g) for v, g in zip(weights, fetched[4:], strict=True)]
    ts = [td.tensor(a, requires_grad=True) for a in (x, w, u)]
    eager_h, _, eager_out = cell(*ts[1:])(STRUCTURE, ts[0], state=(td.zeros(4), td.zeros(4)))
    eager_loss = (eager_h**2).sum() + eager_out.sum()
    eager_loss.backward()
    wanted = [eager_h, eager_out, eager_loss, *(t.grad for t in ts)]
    with td.Session(graph) as session:
        session.run(start)
        for _ in range(2):  # a second run finds the function again
            found = session.run(fetched, {fed: x})
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(np.asarray(a), b.detach().numpy(), rtol=1e-4, atol=1e-5)
        losses = [session.run([loss, *update], {fed: x})[0] for _ in range(5)]
    assert losses[-1] < losses[0]


def test_modules_two_directions_and_runs_at_the_same_time():
    layer = nn.Linear(4, 4)

    @td.vertex
    def program(children, x):
        return td.tanh(layer(x) + children.sum(0))

    graph = td.Graph()
    with graph:
        fed = td.placeholder(td.float32, (8, 4))
        up = program(STRUCTURE, fed, state=td.zeros(4))
        down = program(STRUCTURE, up, state=td.zeros(4), direction="down")
    x = td.tensor(arrays()[0])
    results = {}
    session = td.Session(graph)

    def run(k):
        results[k] = [session.run(down, {fed: (x * k).numpy()}) for _ in range(5)]

    threads = [threading.Thread(target=run, args=(k,)) for k in (1, 2, 3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, found in results.items():
        first = program(STRUCTURE, x * k, state=td.zeros(4))
        wanted = program(STRUCTURE, first, state=td.zeros(4), direction="down").detach().numpy()
        for a in found:
            np.testing.assert_allclose(np.asarray(a), wanted, rtol=1e-4, atol=1e-5)


def test_errors_while_the_graph_is_built():
    with td.Graph():
        fed = td.placeholder(td.float32, (8, 4))

        @td.vertex
        def dropped(children, x):
            return nn.functional.dropout(x + children.sum(0), 0.5)

        with pytest.raises(td.errors.UnsupportedError, match="random numbers"):
            dropped(STRUCTURE, fed, state=td.zeros(4))

        @td.vertex
        def wrong(children, x):
            return x[:2]

        with pytest.raises(td.errors.ShapeError, match="for state 0"):
            wrong(STRUCTURE, fed, state=td.zeros(4))
