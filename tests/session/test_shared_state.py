"""Parameters of modules are variables of the graphs that they meet: one memory for sessions and eager code."""

import numpy as np
import pytest

import tandem as td
from tandem import nn


def build(model, optimizer=None):
    graph = td.Graph()
    with graph:
        x = td.placeholder(td.float32, (None, 3), name="x")
        y = td.placeholder(td.float32, (None, 1), name="y")
        loss = ((model(x) - y) ** 2).mean()
        variables = td.trainable_variables()
        updates = [td.assign_sub(v, 0.1 * g) for v, g in zip(variables, td.gradients(loss, variables), strict=True)]
        train = td.group(*updates)
        start = td.global_variables_initializer()
    return graph, x, y, loss, train, start


def batch():
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    return x, x.sum(1, keepdims=True)


def model_of():
    td.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def test_a_session_trains_the_module_that_eager_code_evaluates():
    model, twin = model_of(), model_of()
    places = [p.data_ptr() for p in model.parameters()]
    graph, x, y, loss, train, start = build(model)
    assert len(graph.trainable_variables) == 4
    session = td.Session(graph)
    session.run(start)  # leaves parameters as they are
    xs, ys = batch()
    optimizer = td.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(3):
        before = session.run(loss, {x: xs, y: ys}).item()
        expected = ((twin(td.tensor(xs)) - td.tensor(ys)) ** 2).mean()
        assert before == pytest.approx(expected.item(), rel=1e-5)
        session.run(train, {x: xs, y: ys})
        expected.backward()
        optimizer.step()
        optimizer.zero_grad()
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert places == [p.data_ptr() for p in model.parameters()]


def test_what_eager_code_writes_is_what_a_run_reads_and_all_sessions_share_it():
    model = nn.Linear(3, 1)
    graph, x, y, loss, train, _ = build(model)
    first, second = td.Session(graph), td.Session(graph)
    xs, ys = batch()
    first.run(train, {x: xs, y: ys})
    assert first.run(loss, {x: xs, y: ys}).item() == second.run(loss, {x: xs, y: ys}).item()
    with td.no_grad():
        model.weight.fill_(1.0)
        model.bias.zero_()
    assert first.run(loss, {x: xs, y: ys}).item() == pytest.approx(0.0, abs=1e-10)
    (weight, _) = graph.trainable_variables
    first.load(weight, np.zeros((1, 3), np.float32))
    assert model.weight.tolist() == [[0.0, 0.0, 0.0]]
    assert second.run(weight).tolist() == [[0.0, 0.0, 0.0]]


def test_a_record_notices_that_a_session_has_written_what_it_saved():
    model = nn.Linear(3, 1)
    graph, x, y, _, train, _ = build(model)
    xs, ys = batch()
    v = td.tensor(xs, requires_grad=True)
    result = model(v).sum()
    td.Session(graph).run(train, {x: xs, y: ys})
    with pytest.raises(td.AutogradError, match=r"written|modified|changed"):
        result.backward()


def test_a_variable_that_is_only_written_keeps_its_memory():
    w = td.ones(3, requires_grad=True)
    place = w.data_ptr()
    graph = td.Graph()
    with graph:
        x = td.placeholder(td.float32, (3,), name="x")
        update = td.assign(w, x * 2)
    td.Session(graph).run(update, {x: [1.0, 2.0, 3.0]})
    assert w.tolist() == [2.0, 4.0, 6.0] and w.data_ptr() == place


def test_operators_in_place_write_buffers_of_modules():
    count = td.zeros(2)
    graph = td.Graph()
    with graph:
        x = td.placeholder(td.float32, (2,), name="x")
        more = count.add_(x)
    session = td.Session(graph)
    for _ in range(2):
        session.run(more, {x: [1.0, 2.0]})
    assert count.tolist() == [2.0, 4.0]


def test_a_saved_graph_has_the_parameters_as_initial_values():
    model = nn.Linear(3, 1)
    graph = build(model)[0]
    loaded = td.Graph.from_json(graph.to_json())
    session = td.Session(loaded)
    with loaded:
        start = td.global_variables_initializer()
    session.run(start)
    (weight, _) = loaded.trainable_variables
    np.testing.assert_array_equal(session.run(weight).numpy(), model.weight.detach().numpy())
