"""Gradients of what several tasks compute."""

import numpy as np

import tandem as td
from tests.distributed.cluster.test_session import PS0, PS1, W0, W1, both, cluster, empty  # noqa: F401


def split_network():
    """Two layers on each of two workers, joined in the middle and at the end, with parameters on two servers."""
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (None, 4), name="x")
        with td.device(PS0):
            a = td.Variable(td.tensor(np.linspace(-1, 1, 12).reshape(4, 3), dtype=td.float32), name="a")
        with td.device(PS1):
            b = td.Variable(td.tensor(np.linspace(-2, 1, 12).reshape(4, 3), dtype=td.float32), name="b")
            c = td.Variable(td.tensor(np.linspace(-1, 2, 9).reshape(3, 3), dtype=td.float32), name="c")
        with td.device(W0):
            left = td.tanh(x @ a)
        with td.device(W1):
            right = td.sigmoid(x @ b + left)
        with td.device(W0):
            join = td.tanh((left + right) @ c)
        with td.device(W1):
            loss = ((join * right) ** 2).mean()
        gradients = td.gradients(loss, [a, b, c, left, x])
        init = td.global_variables_initializer()
    return graph, x, loss, gradients, init


def test_each_task_differentiates_what_it_computed(cluster):  # noqa: F811
    graph, x, loss, gradients, init = split_network()
    data = {x: np.arange(20).reshape(5, 4) / 10}

    def use(session):
        session.run(init)
        return session.run([loss, *gradients], data)

    expected, found = use(td.Session(graph, soft_placement=True)), use(td.Session(graph, target=cluster))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    assert cluster.describe(W0)["counts"]["messages"] and cluster.describe(W1)["counts"]["messages"]


def test_products_are_not_computed_again_for_gradients(cluster):  # noqa: F811
    graph, x, loss, gradients, init = split_network()
    session = td.Session(graph, target=cluster)
    session.run(init)
    session.run([loss, *gradients], {x: np.ones((5, 4))})

    def products(task):
        reports = [p.reports[0] for p in cluster.engine.tasks[task].programs.values()]
        return sum(n.op.name == "matmul" for r in reports for entry in r for n in r.graph(entry).nodes)

    assert (products(W0), products(W1)) == (6, 3)  # one forward and two backward for each


def test_training_over_tasks_by_every_optimiser(cluster):  # noqa: F811
    import tandem.v1 as tf

    for make in (
        lambda: tf.train.GradientDescentOptimizer(0.1),
        lambda: tf.train.MomentumOptimizer(0.1, 0.9),
        lambda: tf.train.AdamOptimizer(0.1),
    ):
        cluster.reset()
        with tf.Graph().as_default() as graph:
            with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=W1)):
                x = tf.placeholder(tf.float32, [None, 2], name="x")
                w = tf.Variable([[1.0], [2.0]], name="w")
                b = tf.Variable([0.5], name="b")
                count = tf.Variable(0, name="count", trainable=False)
                loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - 1.0))
                train = make().minimize(loss, global_step=count)
            init = tf.global_variables_initializer()

        def use(session, x=x, w=w, b=b, count=count, loss=loss, train=train, init=init):
            session.run(init)
            for k in range(3):
                session.run(train, {x: [[1, k], [2, 3]]})
            return session.run([w, b, count, loss], {x: [[1, 2]]})

        expected = use(td.Session(graph, soft_placement=True))
        for a, b in zip(expected, use(tf.Session(cluster, graph=graph)), strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-6)
        state = cluster.describe()
        assert "w" in state[PS0]["variables"] and "b" in state[PS1]["variables"]
        assert all(not state[task]["variables"] for task in (W0, W1))  # an optimiser's state is where its variable is


def test_a_task_that_comes_back_to_what_it_computed_counts_each_path_once(cluster):  # noqa: F811
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (3,), name="x")
        with td.device(W0):
            h = td.tanh(x)
        with td.device(W1):
            b = h * 2
        with td.device(W0):
            y = (td.sin(b) * h * x).sum()  # h and x, of which h was computed here
        slopes = td.gradients(y, [x])
    both(graph, cluster, lambda session: session.run(slopes, {x: [0.3, -0.2, 0.5]}))


def test_gradients_of_gradients_over_tasks(cluster):  # noqa: F811
    with td.Graph() as graph:
        x = td.placeholder(td.float32, (), name="x")
        with td.device(W0):
            y = td.tanh(x)
        with td.device(W1):
            z = y * y * y
        (first,) = td.gradients(z, [x])
        (second,) = td.gradients(first, [x])
        (third,) = td.gradients(second, [x])
        (of_square,) = td.gradients(first * first, [y])
    found = [v.item() for v in td.Session(graph, target=cluster).run([first, second, third], {x: 0.5})]
    t = np.tanh(0.5)
    s = 1 - t * t
    expected = [3 * t**2 * s, 6 * t * s**2 - 6 * t**3 * s, 6 * s**3 - 42 * t**2 * s**2 + 12 * t**4 * s]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    alone = td.Session(graph, soft_placement=True)
    cut = td.Session(graph, target=cluster)
    np.testing.assert_allclose(cut.run(of_square, {x: 0.5}).item(), alone.run(of_square, {x: 0.5}).item(), rtol=1e-5)


def test_second_derivatives_by_what_the_first_were_not_taken_of(cluster):  # noqa: F811
    """The gradient of a penalty on gradients of one layer by the parameters of all, as a gradient penalty has it."""
    graph, x, _, gradients, init = split_network()
    with graph:
        of_a, of_b, of_c = gradients[:3]
        with td.device(PS0):
            penalty = (of_a**2).sum() + (of_b * of_b).sum()
        variables = graph.trainable_variables
        twice = td.gradients(penalty, [*variables, x])
        crossed = td.gradients((of_c**2).sum(), variables[:1])
    data = {x: np.arange(20).reshape(5, 4) / 10}

    def use(session):
        session.run(init)
        return session.run([penalty, *twice, *crossed], data)

    expected, found = use(td.Session(graph, soft_placement=True)), use(td.Session(graph, target=cluster))
    assert all(np.abs(v.numpy()).max() > 1e-4 for v in expected)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)
