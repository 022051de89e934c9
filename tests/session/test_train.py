"""Optimisers in graphs, and the classic names."""

import os
import runpy

import numpy as np
import pytest

import tandem as td
from tandem import v1

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

OPTIMIZERS = {
    "sgd": lambda p: td.optim.SGD(p, lr=0.1),
    "momentum": lambda p: td.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adagrad": lambda p: td.optim.Adagrad(p, lr=0.1),
    "rmsprop": lambda p: td.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adam": lambda p: td.optim.Adam(p, lr=0.05),
    "adamw": lambda p: td.optim.AdamW(p, lr=0.05, amsgrad=True),
    "adadelta": lambda p: td.optim.Adadelta(p, lr=1.0),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimisers_make_the_steps_of_eager_code(name):
    start = np.random.default_rng(0).standard_normal((4, 3)).astype("f")
    a = np.random.default_rng(1).standard_normal((5, 4)).astype("f")

    w = td.nn.Parameter(td.tensor(start))
    optimizer = OPTIMIZERS[name]([w])
    for _ in range(5):
        optimizer.zero_grad()
        td.tanh(td.tensor(a) @ w).sum().backward()
        optimizer.step()

    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None, 4))
        v = td.Variable(start)
        bias = td.Variable(td.zeros(3), trainable=False)
        step = OPTIMIZERS[name]([v]).minimize(td.tanh(x @ v + bias).sum())
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    for _ in range(5):
        assert session.run(step, {x: a}) is None
    np.testing.assert_allclose(session.run(v).numpy(), w.detach().numpy(), rtol=2e-5, atol=1e-6)
    assert not session.run(bias).numpy().any()


def test_the_gradient_is_that_of_before_the_step():
    with td.Graph() as graph:
        a, b = td.Variable(1.0), td.Variable(2.0)
        step = v1.train.GradientDescentOptimizer(0.5).minimize(a * b)
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    session.run(step)
    assert [t.item() for t in session.run([a, b])] == [0.0, 1.5]


def test_global_step_and_learning_rate_of_a_graph():
    with td.Graph() as graph:
        rate = td.placeholder(td.float32, ())
        w = td.Variable(1.0)
        count = td.Variable(0, trainable=False, name="global_step")
        optimizer = v1.train.GradientDescentOptimizer(rate)
        step = optimizer.apply_gradients(optimizer.compute_gradients(w * 3), global_step=count)
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    session.run(step, {rate: 0.1})
    session.run(step, {rate: 0.2})
    assert session.run(count).item() == 2
    assert session.run(w).item() == pytest.approx(1 - 0.3 - 0.6)


def test_the_classic_program_as_it_stands():
    namespace = {"BATCH": 16, "NUM_STEPS": 3}
    exec("from tandem.v1 import *", namespace)
    v1.reset_default_graph()
    generator = np.random.default_rng(0)
    namespace["x_data"] = generator.random((16, 784), dtype="f")
    namespace["y_data"] = np.eye(10, dtype="f")[generator.integers(0, 10, 16)]
    exec(
        """
x = placeholder(float32, [BATCH, 784]); y = placeholder(float32, [BATCH, 10])
W_1 = Variable(random_uniform([784, 100])); b_1 = Variable(zeros([100]))
layer_1 = nn.relu(matmul(x, W_1) + b_1)
W_2 = Variable(random_uniform([100, 10])); b_2 = Variable(zeros([10]))
layer_2 = matmul(layer_1, W_2) + b_2
loss = nn.softmax_cross_entropy_with_logits(layer_2, y)
train_op = train.AdagradOptimizer(0.01).minimize(loss)
with Session() as sess:
    sess.run(initialize_all_variables())
    for step in range(NUM_STEPS): sess.run(train_op, {x: x_data, y: y_data})
    losses = sess.run(loss, {x: x_data, y: y_data})
""",
        namespace,
    )
    assert isinstance(namespace["losses"], np.ndarray) and namespace["losses"].shape == (16,)
    v1.reset_default_graph()


def test_real_digits():
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    v1.reset_default_graph()
    td.manual_seed(0)
    assert runpy.run_path(os.path.join(ROOT, "examples", "digits_static.py"))["accuracy"] > 0.95
    v1.reset_default_graph()


def _value(build, **feeds):
    with td.Graph() as graph:
        placeholders = {k: v1.placeholder(a.dtype.name, a.shape) for k, a in feeds.items()}
        made = build(**placeholders)
    return v1.Session(graph).run(made, {placeholders[k]: a for k, a in feeds.items()})


def test_classic_names():
    a = np.arange(6, dtype="f").reshape(2, 3)
    np.testing.assert_allclose(
        _value(lambda x: v1.reduce_mean(x, reduction_indices=[1], keep_dims=True), x=a), a.mean(1, keepdims=True)
    )
    np.testing.assert_allclose(_value(lambda x: v1.matmul(x, x, transpose_b=True), x=a), a @ a.T)
    np.testing.assert_allclose(_value(lambda x: v1.transpose(x), x=a), a.T)
    np.testing.assert_allclose(_value(lambda x: v1.concat([x, x], 1), x=a), np.concatenate([a, a], 1))
    assert _value(lambda x: v1.argmax(x, 1), x=a).tolist() == [2, 2]
    assert _value(lambda x: v1.gather(x, [1, 0]), x=a).tolist() == a[[1, 0]].tolist()
    i = np.array([0, 2])
    assert _value(lambda i: v1.one_hot(i, 3), i=i).tolist() == [[1, 0, 0], [0, 0, 1]]
    np.testing.assert_allclose(
        _value(lambda x, i: v1.nn.sparse_softmax_cross_entropy_with_logits(x, i), x=a, i=i),
        _value(lambda x, i: v1.nn.softmax_cross_entropy_with_logits(x, v1.one_hot(i, 3)), x=a, i=i),
        rtol=1e-6,
    )
    mean, variance = _value(lambda x: v1.nn.moments(x, [0]), x=a)
    np.testing.assert_allclose(mean, a.mean(0))
    np.testing.assert_allclose(variance, a.var(0))
    assert _value(lambda: v1.constant(3.0, shape=[2])).tolist() == [3, 3]
    drawn = _value(lambda: v1.truncated_normal([1000], stddev=2.0))
    assert np.abs(drawn).max() <= 4 and 1.5 < drawn.std() < 2
    kept = _value(lambda x: v1.nn.dropout(x, 0.5), x=np.ones((100,), "f"))
    assert set(kept) == {0, 2}


def test_same_padding():
    x = np.random.default_rng(0).standard_normal((1, 5, 6, 2)).astype("f")
    ones = np.ones((3, 3, 2, 1), "f")
    got = _value(lambda x, w: v1.nn.conv2d(x, w, [1, 2, 2, 1], "SAME"), x=x, w=ones)
    padded = np.pad(x, ((0, 0), (1, 1), (0, 1), (0, 0)))
    expected = [[padded[0, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].sum() for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(got[0, :, :, 0], expected, rtol=1e-4, atol=1e-5)
    pooled = _value(lambda x: v1.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"), x=x)
    assert pooled.shape == (1, 3, 3, 2) and pooled[0, 2, 0, 0] == x[0, 4, :2, 0].max()
