"""The classic names: what programs written for them take for granted."""

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


def run(fetches, feed_dict=None):
    return tf.Session(graph=tf.get_default_graph()).run(fetches, feed_dict)


def test_a_constant_with_a_shape():
    assert run(tf.constant([1, 2, 3, 4, 5, 6], shape=[2, 3])).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert run(tf.constant([1, 2], shape=[2, 2])).tolist() == [[1, 2], [2, 2]]
    assert run(tf.constant(2.5, shape=[3])).tolist() == [2.5, 2.5, 2.5]
    assert run(tf.constant(np.arange(4.0), shape=(2, 2))).dtype == np.float64
    assert tf.constant([0.5], shape=[2]).dtype is tf.float32
    assert run(tf.constant([], shape=[0, 3])).shape == (0, 3)
    with pytest.raises(td.ShapeError, match="3 values for shape"):
        tf.constant([1, 2, 3], shape=[2])


def test_division_of_integers():
    seven = tf.constant(7)
    assert run(tf.div(seven, 2)) == 3 and run(tf.div(seven, 2)).dtype == np.int32
    assert run(tf.div(tf.constant([-7]), tf.constant([2]))).tolist() == [-4]
    assert run(tf.div([7, 8], 2)).tolist() == [3, 4]
    assert run(tf.div(tf.constant(7.0), 2)) == 3.5 and run(tf.div(7, 2.0)) == 3.5
    assert run(tf.divide(seven, 2)) == 3.5


def test_names_of_operators(graph):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    w = tf.Variable(tf.ones([2, 3]))
    logits = tf.matmul(x, w, name="logits")
    assert logits.name == "logits:0" and tf.matmul(x, w, name="logits").name == "logits_1:0"
    with tf.name_scope("loss"):
        assert tf.reduce_mean(logits, name="mean").name == "loss/mean:0"
        assert tf.nn.relu(logits, name="active").name == "loss/active:0"
    assert tf.add(x, 1.0, "sum").name == "sum:0" and tf.nn.relu(x, "active").name == "active:0"
    assert tf.constant(1.0, name="one").name == "one:0"
    assert tf.random_uniform([2], -1, 1, name="drawn").name == "drawn:0"
    assert tf.assign(w, tf.zeros([2, 3]), name="clear").name == "clear:0"
    (slope,) = tf.gradients(logits, [x], name="slope")
    assert slope.name == "slope:0"
    assert tf.global_variables_initializer("start").name == "start"
    session = tf.Session()
    session.run("start")
    assert session.run("logits:0", {"x:0": [[1, 2]]}).tolist() == [[3, 3, 3]]
    assert session.run(["loss/mean:0", "slope:0"], {x: [[1, 2]]})[0] == 3
    session.run("clear")
    assert not session.run(w).any()
    # What was there already keeps its name, and so do the parts of what has several.
    assert [tf.convert_to_tensor(x, name="same").name for _ in range(2)] == ["same:0", "same_1:0"] and x.name == "x:0"
    mean, variance = tf.nn.moments(x, [0], name="moments")
    assert mean.name.startswith("moments/") and variance.name.startswith("moments/")
    assert len(graph._by_name) == len(graph.nodes) and all(graph.find(n.name) is n for n in graph.nodes)


def test_names_of_control_flow():
    x = tf.placeholder(tf.float32, (), name="x")
    v = tf.Variable(0.0, name="v")
    assert tf.cond(x > 0, lambda: x, lambda: -x, name="size").name == "size:0"
    assert tf.cond(x > 0, lambda: tf.assign(v, x), lambda: v.value(), name="kept").name == "kept:0"
    assert tf.while_loop(lambda y: y < 10, lambda y: y * 2, [x], name="doubled").name == "doubled:0"
    assert run(["size:0", "doubled:0"], {x: 3.0}) == [3, 12]


def test_a_named_operator_inside_a_loop():
    x = tf.placeholder(tf.float32, ())
    y = tf.while_loop(lambda y: y < 10, lambda y: tf.multiply(y, 2.0, name="double"), [x])
    assert run(y, {x: 3.0}) == 12


def test_branches_and_loops_that_print(capsys):
    x, n = tf.placeholder(tf.float32, ()), tf.placeholder(tf.int32, ())
    chosen = tf.cond(x > 1, lambda: tf.Print(x, [x], "large "), lambda: -x)
    counted = tf.while_loop(lambda i: i < n, lambda i: tf.Print(i, [i], "at ") + 1, [tf.constant(0)])
    assert run(chosen, {x: 3.0}) == 3 and capsys.readouterr().err == "large [3]\n"
    assert run(chosen, {x: 0.5}) == -0.5 and capsys.readouterr().err == ""
    assert run(counted, {n: 2}) == 2 and capsys.readouterr().err == "at [0]\nat [1]\n"
    with pytest.raises(td.UnsupportedError, match="cannot change variables, print"):
        td.cond(x > 1, lambda: td.Print(x, [x]), lambda: -x)


def test_operators_with_a_seed():
    drawn, same = tf.random_normal([2], seed=42), tf.random_normal([2], seed=42)
    other, plain = tf.truncated_normal([2], seed=1), tf.random_uniform([3])
    first = tf.Session()
    values = [first.run(drawn).tolist() for _ in range(3)]
    assert len({tuple(v) for v in values}) == 3
    second = tf.Session()
    second.run([plain, other])
    assert [second.run([drawn, plain])[0].tolist() for _ in range(3)] == values
    assert run([drawn, same])[1].tolist() == values[0]
    table = tf.Variable(tf.random_uniform([2], seed=3))
    init = tf.global_variables_initializer()
    tables = []
    for _ in range(2):
        with tf.Session() as session:
            session.run(init)
            tables.append(table.eval().tolist())
    assert tables[0] == tables[1]


def test_python_integers_are_int32():
    for made in (
        tf.constant([1, 2]),
        tf.constant(1),
        tf.range(3),
        tf.fill([2], 7),
        tf.Variable([1, 2]),
        tf.Variable(3),
        tf.reduce_sum(tf.constant([[1], [2]])),
        tf.shape(tf.zeros([2, 3])),
    ):
        assert made.dtype is tf.int32, made
    assert tf.constant([2**40]).dtype is tf.int64 and tf.constant(np.arange(2)).dtype is tf.int64
    assert tf.constant([1, 2.5]).dtype is tf.float32 and tf.Variable([1.0]).dtype is tf.float32
    assert run(tf.range(1, 7, 2)).tolist() == [1, 3, 5] and run(tf.range(0.0, 1.0, 0.5)).tolist() == [0, 0.5]


def test_placeholders():
    with pytest.raises(td.ShapeError, match=r"number of axes is unknown[\s\S]*\[None, 10\]"):
        tf.placeholder(tf.float32)
    x = tf.placeholder(tf.float32, [None, 3])
    assert x.get_shape().as_list() == [None, 3] and x.get_shape() == (None, 3)
    assert x.get_shape()[1].value == 3 and x.get_shape()[0].value is None
    assert [d.value for d in x.get_shape()] == [None, 3] and x.get_shape()[1:].as_list() == [3]
    assert x.get_shape().ndims == 2 and x.get_shape().num_elements() is None
    assert tf.TensorShape([2, 3]).num_elements() == 6 and repr(x.get_shape()) == "(None, 3)"
    assert tf.placeholder(tf.float32, x.get_shape()).get_shape() == (None, 3)


def test_a_placeholder_with_a_default():
    rate = tf.placeholder_with_default(0.5, [], name="rate")
    rows = tf.placeholder_with_default(np.ones((2, 3), "f"), [None, 3])
    assert rate.name == "rate:0" and rows.get_shape() == (None, 3)
    total = tf.reduce_sum(rows, 0) * rate
    assert run(total).tolist() == [1, 1, 1]
    assert run(total, {rate: 1.0, rows: np.ones((5, 3))}).tolist() == [5, 5, 5]
    assert run(tf.shape(rows)[0]) == 2 and run(tf.shape(rows)[0], {rows: np.ones((5, 3))}) == 5
    with pytest.raises(td.ShapeError, match="they must fit"):
        tf.placeholder_with_default([1.0], [2])


def test_shapes_as_tensors():
    x = tf.placeholder(tf.float32, [None, 6])
    n = tf.shape(x)[0]
    fed = {x: np.arange(24.0).reshape(4, 6)}
    assert run(tf.shape(x), fed).tolist() == [4, 6] and run([n, n * 2 + 1, tf.size(x), tf.rank(x)], fed) == [
        4,
        9,
        24,
        2,
    ]
    assert run(tf.reshape(x, [n, 2, 3]), fed).shape == (4, 2, 3)
    assert run(tf.reshape(x, tf.stack([n * 2, 3])), fed).shape == (8, 3)
    assert run(tf.zeros(tf.shape(x)), fed).shape == (4, 6) and run(tf.ones([n]), fed).shape == (4,)
    assert run(tf.random_normal(tf.shape(x)[:1]), fed).shape == (4,)
    assert run(tf.fill([n, 2], 7), fed).tolist() == [[7, 7]] * 4
    assert run(tf.tile(tf.constant([[1]]), [n, 1]), fed).shape == (4, 1)
    assert run(tf.range(n), fed).tolist() == [0, 1, 2, 3]
    assert run(tf.to_float(n) / 8, fed) == 0.5
    assert tf.zeros(3).get_shape() == (3,) and tf.ones(tf.constant([2, 3])).get_shape() == (2, 3)
    with pytest.raises(td.UnsupportedError, match="computes from values"):
        tf.zeros([tf.to_int32(tf.reduce_sum(x))])
    with pytest.raises(td.UnsupportedError, match="a size is None"):
        tf.zeros([x.get_shape()[0], 2])


def test_pieces():
    a = np.arange(12).reshape(3, 4)
    x = tf.constant(a)
    assert [p.tolist() for p in run(tf.split(x, 2, 1))] == [a[:, :2].tolist(), a[:, 2:].tolist()]
    assert [p.shape for p in run(tf.split(x, [1, 3], axis=1))] == [(3, 1), (3, 3)]
    assert [p.tolist() for p in run(tf.unstack(x))] == a.tolist() and len(tf.unstack(x, axis=1)) == 4
    assert run(tf.slice(x, [1, 0], [2, -1])).tolist() == a[1:].tolist()
    assert run(tf.slice(x, [0, 1], [1, 2], name="part")).tolist() == [[1, 2]]
    assert run(tf.pad(x, [[0, 1], [2, 0]])).tolist() == np.pad(a, [[0, 1], [2, 0]]).tolist()
    assert run(tf.pad(x, [[1, 1], [0, 0]], "REFLECT")).tolist() == np.pad(a, [[1, 1], [0, 0]], "reflect").tolist()
    assert run(tf.pad(x, [[1, 0], [0, 0]], "SYMMETRIC")).tolist() == np.pad(a, [[1, 0], [0, 0]], "symmetric").tolist()
    assert run(tf.pad(x, [[1, 0], [0, 0]], constant_values=9))[0].tolist() == [9] * 4
    halves = tf.split(x, 2, 1, name="halves")
    assert [h.name for h in halves] == ["halves:0", "halves:1"]
    with pytest.raises(td.ShapeError, match="divisible"):
        tf.split(x, 3, 1)
    with pytest.raises(td.ShapeError, match="unstacked into 2"):
        tf.unstack(x, 2)
    with pytest.raises(td.ValueRangeError, match="not within axis 1"):
        tf.slice(x, [0, 3], [1, 2])
    with pytest.raises(td.ShapeError, match="one for each axis"):
        tf.slice(x, [0], [1])


def test_more_arithmetic():
    x, y = tf.constant([7, -7]), tf.constant([3, 3])
    assert run([tf.mod(x, y), tf.floordiv(x, y), tf.squared_difference(x, y)])[0].tolist() == [1, 2]
    assert run(tf.floordiv(x, y)).tolist() == [2, -3] and run(tf.squared_difference(x, y)).tolist() == [16, 100]
    assert run(tf.to_float(x)).dtype == np.float32 and run(tf.to_int32(tf.constant([2.7]))).tolist() == [2]
    assert run(tf.reduce_sum(input_tensor=[[1.0, 2.0]], axis=1)).tolist() == [3]
    assert run(tf.reduce_mean(tf.constant([1, 2]))) == 1 and run(tf.reduce_mean([1.0, 2.0], 0, True)).tolist() == [1.5]
    assert run(tf.nn.leaky_relu([-1.0])).tolist() == pytest.approx([-0.2])
    assert run(tf.cumsum(x)).tolist() == [7, 0] and tf.cumsum(x).dtype is tf.int32
    assert run(tf.argmax(tf.constant([[1, 5]]), 1, output_type=tf.int32)).dtype == np.int32
    assert run(tf.one_hot([0, 2], 3, on_value=5.0, off_value=-1.0)).tolist() == [[5, -1, -1], [-1, -1, 5]]
    assert run(tf.one_hot([1], 2, on_value=1, off_value=0)).dtype == np.int32
    assert run(tf.one_hot([0, 2], 3, axis=0)).tolist() == [[1, 0], [0, 0], [0, 1]]


def test_clipping():
    a, b = np.array([3.0, 0.0], "f"), np.array([[4.0]], "f")
    assert run(tf.global_norm([tf.constant(a), None, tf.constant(b)])) == 5
    np.testing.assert_allclose(run(tf.clip_by_norm(tf.constant(a), 1.5)), [1.5, 0], rtol=1e-6)
    np.testing.assert_allclose(run(tf.clip_by_norm(tf.constant(a), 5.0)), a)
    (x, none, y), norm = tf.clip_by_global_norm([tf.constant(a), None, tf.constant(b)], 2.5)
    assert none is None and run(norm) == 5
    np.testing.assert_allclose(run(x), a / 2, rtol=1e-6)
    np.testing.assert_allclose(run(y), b / 2, rtol=1e-6)
    zero, _ = tf.clip_by_global_norm([tf.zeros([2])], 1.0)
    assert run(zero[0]).tolist() == [0, 0]


def test_random_integers():
    drawn = run(tf.random_uniform([1000], 2, 5, dtype=tf.int32, seed=1))
    assert drawn.dtype == np.int32 and set(drawn) == {2, 3, 4}
    assert set(run(tf.random_uniform([100], maxval=2, dtype=tf.int64))) == {0, 1}
    with pytest.raises(td.ValueRangeError, match="maxval"):
        tf.random_uniform([2], dtype=tf.int32)


def test_more_of_nn():
    x = np.random.default_rng(0).standard_normal((2, 5, 5, 3)).astype("f")
    valid = run(tf.nn.avg_pool(tf.constant(x), [1, 2, 2, 1], [1, 2, 2, 1], "VALID"))
    np.testing.assert_allclose(valid[0, 0, 0], x[0, :2, :2].mean((0, 1)), rtol=1e-5)
    same = run(tf.nn.avg_pool(tf.constant(x), [1, 2, 2, 1], [1, 2, 2, 1], "SAME"))
    assert same.shape == (2, 3, 3, 3)
    np.testing.assert_allclose(same[0, 2, 2], x[0, 4, 4], rtol=1e-5)  # one element is there, three are added
    values, indices = run(tf.nn.top_k(tf.constant([[1.0, 9.0, 4.0]]), 2))
    assert values.tolist() == [[9, 4]] and indices.tolist() == [[1, 2]] and indices.dtype == np.int32
    mean, variance = tf.nn.moments(tf.constant(x), [0, 1, 2])
    normal = run(tf.nn.batch_normalization(tf.constant(x), mean, variance, None, None, 1e-5))
    np.testing.assert_allclose(normal.mean((0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(normal.std((0, 1, 2)), 1, rtol=1e-3)
    scaled = run(tf.nn.batch_normalization(tf.constant(x), mean, variance, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], 1e-5))
    np.testing.assert_allclose(scaled, normal * 2 + [1, 2, 3], rtol=1e-4, atol=1e-5)
    dropped = tf.nn.dropout(tf.ones([4, 100]), keep_prob=0.5, noise_shape=[4, 1], seed=3)
    assert all(len(set(row)) == 1 for row in run(dropped).tolist())
    with pytest.raises(td.ValueRangeError, match="'SAME' or 'VALID'"):
        tf.nn.avg_pool(tf.constant(x), [1, 2, 2, 1], [1, 2, 2, 1], "FULL")


def test_variables_by_name(graph):
    with tf.variable_scope("layer") as scope:
        w = tf.get_variable("w", [3, 2])
        b = tf.get_variable("b", [2], initializer=tf.zeros_initializer())
        y = tf.matmul(tf.ones([1, 3]), w, name="y")
    assert (w.name, b.name, y.name) == ("layer/w:0", "layer/b:0", "layer/y:0")
    with tf.variable_scope("layer", reuse=True):
        assert tf.get_variable("w", [3, 2]) is w
        with pytest.raises(td.ValueRangeError, match="no variable 'layer/c'"):
            tf.get_variable("c", [1])
        with pytest.raises(td.ShapeError, match=r"'layer/w' is \(3, 2\)"):
            tf.get_variable("w", [2, 2])
        with pytest.raises(td.DTypeError, match="float32"):
            tf.get_variable("w", [3, 2], tf.float64)
    with tf.variable_scope(scope), pytest.raises(td.ValueRangeError, match="there is a variable 'layer/w' already"):
        tf.get_variable("w", [3, 2])
    with tf.variable_scope("outer"):
        with tf.variable_scope("inner", reuse=tf.AUTO_REUSE):
            twice = [tf.get_variable("v", initializer=[1, 2]) for _ in range(2)]
        with tf.variable_scope(scope):
            tf.get_variable_scope().reuse_variables()
            assert tf.get_variable("b") is b
    assert twice[0] is twice[1] and twice[0].name == "outer/inner/v:0" and twice[0].dtype is tf.int32
    names = []
    for _ in range(2):
        with tf.variable_scope(None, "block"):
            names.append(tf.get_variable("v", [1]).name)
    assert names == ["block/v:0", "block_1/v:0"]
    with pytest.raises(td.ShapeError, match="neither a shape nor"):
        tf.get_variable("nothing")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        limit = (6 / 5) ** 0.5
        assert np.abs(w.eval()).max() <= limit and w.eval().any() and not b.eval().any()


def test_variables_and_loops():
    x = tf.placeholder(tf.float32, [])
    w = tf.get_variable("w", [], initializer=tf.constant_initializer(2.0))
    with pytest.raises(td.UnsupportedError, match="inside a loop or branch"):
        tf.cond(x > 0, lambda: tf.get_variable("v", []) + 0, lambda: x)

    def body(y):
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            return y * tf.get_variable("w")

    doubled = tf.while_loop(lambda y: y < 10, body, [x])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(doubled, {x: 3.0}) == 12 and tf.global_variables() == [w]


def test_collections():
    with tf.variable_scope("a", initializer=tf.constant_initializer(2.0), regularizer=tf.nn.l2_loss):
        a = tf.get_variable("w", [2])
    b = tf.Variable(1.0, name="b", trainable=False)
    local = tf.Variable(5.0, name="seen", collections=[tf.GraphKeys.LOCAL_VARIABLES])
    assert tf.global_variables() == tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES) == [a, b]
    assert tf.trainable_variables() == [a] == tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="a")
    assert tf.trainable_variables("b") == [] and tf.local_variables() == [local]
    (loss,) = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    tf.add_to_collection("mine", loss)
    assert tf.get_collection("mine") == [loss] and tf.get_collection("other") == []
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        assert session.run([loss, local]) == [4, 5]


@pytest.mark.parametrize(
    "initializer",
    [
        tf.ones_initializer(),
        tf.random_normal_initializer(seed=1),
        tf.truncated_normal_initializer(stddev=0.1, seed=1),
        tf.random_uniform_initializer(-1, 1, seed=1),
        tf.glorot_uniform_initializer(seed=1),
        tf.constant_initializer([1, 2, 3, 4]),
        tf.zeros_initializer,
    ],
)
def test_initialisers(initializer):
    made = tf.get_variable("v", [2, 2], initializer=initializer)
    values = []
    for _ in range(2):
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            values.append(made.eval().tolist())
    assert values[0] == values[1] and made.get_shape() == (2, 2) and made.dtype is tf.float32


def test_names_of_the_graph(graph):
    x = tf.placeholder(tf.float32, [], name="x")
    y = tf.multiply(x, 2.0, name="y")
    assert graph.get_tensor_by_name("y:0") is y and graph.get_operation_by_name("y") is y.op
    assert [op.name for op in graph.get_operations()] == ["x", "y"]
    for find, name in (
        (graph.get_tensor_by_name, "y"),
        (graph.get_operation_by_name, "y:0"),
        (graph.find, "z"),
    ):
        with pytest.raises(td.ValueRangeError):
            find(name)
    with pytest.raises(td.IndexRangeError):
        graph.find("y:1")
    session = tf.Session(config=tf.ConfigProto(allow_soft_placement=True, gpu_options=tf.GPUOptions(allow_growth=True)))
    call = session.make_callable([y, x], feed_list=[x])
    assert call(3.0) == [6, 3]
    with pytest.raises(td.ValueRangeError, match="0 values for 1"):
        call()


def test_assign_and_its_shape():
    v = tf.Variable([1.0, 2.0])
    same = tf.assign(v, [3.0, 4.0], validate_shape=False)
    with pytest.raises(td.UnsupportedError, match="keeps its shape"):
        tf.assign(v, [1.0], validate_shape=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(same).tolist() == [3, 4]


def test_decay_of_the_learning_rate():
    step = tf.Variable(0, trainable=False, name="step")
    smooth = tf.train.exponential_decay(0.1, step, 10, 0.5, name="rate")
    stairs = tf.train.exponential_decay(0.1, step, 10, 0.5, staircase=True)
    w = tf.Variable(1.0)
    train = tf.train.GradientDescentOptimizer(stairs).minimize(w, global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step.load(15, session)
        assert smooth.name == "rate:0"
        np.testing.assert_allclose(session.run([smooth, stairs]), [0.1 * 0.5**1.5, 0.05], rtol=1e-6)
        session.run(train)
        np.testing.assert_allclose(session.run(w), 0.95, rtol=1e-6)
        assert session.run(step) == 16


def test_a_saver_keeps_the_last_files(tmp_path):
    v, w = tf.Variable(1.0, name="v"), tf.Variable(2.0, name="w")
    step = tf.Variable(0, name="step")
    saver = tf.train.Saver(var_list=[v], max_to_keep=2)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for k in range(4):
            step.load(k, session)
            path = saver.save(session, str(tmp_path / "model"), global_step=step)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "model-2", "model-3"] and path.endswith(
            "model-3"
        )
        assert saver.last_checkpoints == [str(tmp_path / "model-2"), path]
        v.load(9.0, session)
        w.load(9.0, session)
        saver.restore(session, path)
        assert session.run([v, w]) == [1, 9]
    with pytest.raises(td.UnsupportedError, match="sharded"):
        tf.train.Saver(sharded=True)


def test_rows():
    x = tf.placeholder(tf.float32, [None, 2])
    fed = {x: [[1, 2], [3, 4], [5, 6]]}
    assert run(tf.map_fn(lambda r: r * r, x, name="squares"), fed).tolist() == [[1, 4], [9, 16], [25, 36]]
    assert run("squares:0", fed).tolist() == [[1, 4], [9, 16], [25, 36]]
    both = tf.map_fn(lambda p: p[0] + p[1], (x, x), dtype=tf.float32)
    assert run(both, fed).tolist() == [[2, 4], [6, 8], [10, 12]]
    assert run(tf.map_fn(lambda i: i * 2, [1, 2])).tolist() == [2, 4]
    with pytest.raises(td.DTypeError, match="int32"):
        tf.map_fn(lambda r: r, x, dtype=tf.int32)
    assert run(tf.scan(lambda a, r: a + r, x), fed).tolist() == [[1, 2], [4, 6], [9, 12]]
    assert run(tf.scan(lambda a, r: a + r, x, reverse=True), fed).tolist() == [[9, 12], [8, 10], [5, 6]]
    totals = tf.scan(lambda a, r: a + tf.reduce_sum(r), x, initializer=tf.constant(10.0))
    assert run(totals, fed).tolist() == [13, 20, 31]
    (slope,) = tf.gradients(tf.reduce_sum(totals), [x])
    assert run(slope, fed).tolist() == [[3, 3], [2, 2], [1, 1]]


def test_loops_with_invariants_and_a_maximum():
    n = tf.placeholder(tf.int32, [])
    grown = tf.while_loop(
        lambda i, x: i < n,
        lambda i, x: (i + 1, tf.concat([x, [1.0]], 0)),
        [0, tf.zeros([1])],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )
    assert run(grown[1], {n: 3}).tolist() == [0, 1, 1, 1] and grown[1].get_shape() == (None,)
    with pytest.raises(td.ShapeError, match="shape_invariants are"):
        tf.while_loop(lambda i: i < n, lambda i: i + 1, [0], shape_invariants=[[None]])
    same = tf.while_loop(lambda x: tf.reduce_sum(x) < 10, lambda x: x * 2, [tf.ones([2])], shape_invariants=[[2]])
    assert run(same).tolist() == [8, 8]
    v = tf.Variable(0.0)
    counted = tf.while_loop(
        lambda i: i < n, lambda i: i + tf.to_int32(tf.assign_add(v, 1.0) * 0 + 1), [0], maximum_iterations=2
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(counted, {n: 5}) == 2 and session.run(v) == 2


def test_classic_keywords():
    x = tf.constant(np.ones((1, 2, 2, 1), "f"))
    kept = tf.nn.conv2d(input=x, filter=tf.ones([1, 1, 1, 1]), strides=[1, 1, 1, 1], padding="VALID", name="kept")
    pooled = tf.nn.max_pool(value=tf.nn.relu(features=kept), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    added = tf.nn.bias_add(value=tf.reshape(tensor=pooled, shape=[1, 1]), bias=tf.zeros([1]))
    assert run(added).tolist() == [[1]] and run("kept:0").shape == (1, 2, 2, 1)
    first = tf.py_func(
        func=lambda a: a[:1], inp=[tf.constant([5.0, 6.0])], Tout=tf.float32, stateful=False, shape=(1,), name="first"
    )
    assert run(first).tolist() == [5] and first.name == "first:0"
    with tf.control_dependencies([tf.no_op()]):
        assert run(tf.identity(tf.Print(first, [first], message=None), "again")).tolist() == [5]
    assert run("again:0").tolist() == [5]
