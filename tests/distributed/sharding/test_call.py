"""Operators on sharded tensors: values, gradients of any order, in place, compiled."""

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tests.check_sharded import check_sharded
from tests.distributed.sharding.ranks import P, S, on_mesh, sharded

RNG = np.random.default_rng(0)


X = RNG.standard_normal((4, 6)).astype(np.float32)


def make(*shapes):
    return tuple(RNG.uniform(0.5, 1.5, s).astype(np.float32) for s in shapes)


# One operator of each kind here; `make sharded-check` has all of them.
SAMPLE = {
    "elementwise": (lambda x, y: x * y + td.exp(x), make((5, 4), (5, 4))),
    "broadcast": (lambda x, y: x / y, make((3, 5), (5,))),
    "reduction": (lambda x: x.amax(0) + x.mean((0, 1)), make((5, 4))),
    "softmax": (lambda x: td.log_softmax(x, -1), make((3, 5))),
    "normalisation": (lambda x, w: td.nn.functional.layer_norm(x, (5,), w), make((4, 5), (5,))),
    "product": (lambda a, b: a @ b, make((2, 3, 4), (4, 5))),
    "linear": (td.nn.functional.linear, make((3, 4), (5, 4), (5,))),
    "convolution": (lambda x, w: td.nn.functional.conv2d(x, w, padding=1), make((3, 2, 4, 4), (3, 2, 3, 3))),
    "movement": (lambda x: td.flip(x.reshape(2, 2, 3).permute(2, 0, 1), (1,))[1:], make((4, 3))),
    "sort": (lambda x: td.sort(x, 0)[0], make((5, 3))),
    "scan": (lambda x: td.cumsum(x, 1), make((3, 5))),
    "concat": (lambda x, y: td.cat([x, y], 1), make((3, 4), (3, 2))),
}


@pytest.mark.parametrize("name", SAMPLE)
def test_every_kind_of_operator_gives_what_one_rank_gives(name):
    fn, case = SAMPLE[name]
    check_sharded(fn, case, grad=True, meshes=((2,), (2, 2)), most=3)


def test_gradients_of_gradients():
    wide = X.astype(np.float64)

    def twice(x):
        (g,) = td.autograd.grad((td.softmax(x, 1) * x.exp()).sum(), x, create_graph=True)
        (g**2).sum().backward()
        return x.grad.numpy()

    expected = twice(td.tensor(wide, requires_grad=True))
    for p in (S(0), S(1), P()):
        for made in on_mesh((2,), lambda mesh, p=p: twice(sharded(wide, mesh, [p], True))):
            np.testing.assert_allclose(made, expected)


@pytest.mark.parametrize("placement", [dist.Replicate(), S(0), S(1), P()])
def test_second_gradients_where_a_gradient_is_that_of_the_result(placement):
    """The gradient of a difference is what comes in: a result of backward that is one of its operands."""
    wide = X.astype(np.float64)

    def twice(x):
        y = x - x.mean(axis=0, keepdims=True)
        (g,) = td.autograd.grad((y * y * y).sum(), x, create_graph=True)
        (g * g).sum().backward()
        return x.grad.numpy()

    expected = twice(td.tensor(wide, requires_grad=True))
    for made in on_mesh((2,), lambda mesh: twice(sharded(wide, mesh, [placement], requires_grad=True))):
        np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-12)


def test_gradients_of_one_tensor_that_are_divided_differently_are_added():
    """Nobody has placed them but backward, so nobody could be asked."""
    wide = X.astype(np.float64)

    def twice(x, a, b):
        (g,) = td.autograd.grad((x * x * a).sum() + (x * b).sum(), x, create_graph=True)
        (g * g).sum().backward()
        return g.detach().numpy(), x.grad.numpy()

    def work(mesh):
        given = [sharded(wide, mesh, p) for p in ([dist.Replicate()], [S(0)], [S(1)])]
        given[0].requires_grad = True
        return twice(*given)

    expected = twice(td.tensor(wide, requires_grad=True), td.tensor(wide), td.tensor(wide))
    for made in on_mesh((2,), work):
        np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-12)


def test_operands_that_are_divided_differently_are_the_callers_choice():
    def work(mesh):
        x, y = sharded(X, mesh, [S(0)]), sharded(X, mesh, [S(1)])
        with pytest.raises(td.ShardingError) as error:
            x + y
        return str(error.value), (x + y.redistribute(placements=[S(0)])).placements

    text, placements = on_mesh((2,), work)[0]
    assert "operand 0 (4, 6) is [Shard(0)] and operand 1 (4, 6) is [Shard(1)]" in text
    assert "fix: say which: operand.redistribute" in text and "test_call.py" in text
    assert (S(0),) == placements


def test_a_partial_sum_is_reduced_once_however_often_it_is_used():
    def work(mesh):
        x = sharded(X, mesh, [S(0)])
        total = x.sum(0)
        assert (P(),) == total.placements
        with dist.sharding_report() as report:
            made = td.exp(total) + td.sin(total) * total.relu()
        return report.collectives, made.numpy()

    total = X.sum(0)
    for collectives, made in on_mesh((2,), work):
        assert {"all_reduce": 1} == collectives
        np.testing.assert_allclose(made, np.exp(total) + np.sin(total) * np.maximum(total, 0), rtol=1e-5)


def test_ranks_make_the_same_collectives_where_their_parts_are_the_same_value():
    """On a rank that holds zeros of a summand, x - 0.5 and x - 1.0 are both x - 0."""
    for made in on_mesh((2,), lambda mesh: td.mvlgamma(sharded(X + 6, mesh, [P()]) * 1.0, 3).numpy()):
        np.testing.assert_allclose(made, td.mvlgamma(td.tensor(X + 6), 3).numpy(), rtol=1e-4)


def test_writing_in_place_writes_every_part_and_views_are_read_only():
    def work(mesh):
        x = sharded(X, mesh, [S(1)])
        before = x._version
        x.mul_(2.0).add_(1.0)
        with pytest.raises(td.ValueRangeError, match="a view of a sharded tensor cannot be written"):
            x.reshape(-1).zero_()
        y = sharded(X, mesh, [S(0)], requires_grad=True)
        z = y * 1.0
        z.exp_()
        z.sum().backward()
        return x.numpy(), x._version - before, y.grad.numpy()

    for x, version, g in on_mesh((2,), work):
        np.testing.assert_array_equal(x, X * 2 + 1)
        np.testing.assert_allclose(g, np.exp(X), rtol=1e-5)
        assert version == 2


def test_changing_what_backward_needs_is_noticed():
    def work(mesh):
        x = sharded(X, mesh, [S(0)], requires_grad=True)
        y = x * 1.0
        z = (y * y).sum()
        y.zero_()
        z.backward()

    with pytest.raises(td.AutogradError, match="changed in place"):
        on_mesh((2,), work)


def test_dropout_is_the_same_on_every_mesh():
    td.manual_seed(1)
    expected = td.nn.functional.dropout(td.tensor(X), 0.5).numpy()

    def work(mesh, placements):
        td.manual_seed(1)
        x = sharded(X, mesh, placements, requires_grad=True)
        y = td.nn.functional.dropout(x, 0.5)
        y.sum().backward()
        return y.detach().numpy(), x.grad.numpy()

    for shape, placements in (((2,), [S(0)]), ((3,), [S(1)]), ((2, 2), [S(1), S(0)])):
        for made, g in on_mesh(shape, work, placements):
            np.testing.assert_array_equal(made, expected)
            np.testing.assert_array_equal(g, 2.0 * (expected != 0))


def test_loops_and_checkpoints_take_sharded_tensors():
    def fn(x, w):
        y = td.scan(lambda carry, row: (carry + row, carry * row), td.zeros(6), x)[1]
        return (td.checkpoint(lambda a: td.tanh(a @ w), y) ** 2).sum()

    w = RNG.standard_normal((6, 3)).astype(np.float32)
    a, b = td.tensor(X, requires_grad=True), td.tensor(w, requires_grad=True)
    fn(a, b).backward()

    def work(mesh):
        x, v = sharded(X, mesh, [S(0)], True), sharded(w, mesh, [S(1)], True)
        with dist.implicit_replication():
            fn(x, v).backward()
        return x.grad.numpy(), v.grad.numpy()

    for gx, gw in on_mesh((2,), work):
        np.testing.assert_allclose(gx, a.grad.numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(gw, b.grad.numpy(), rtol=1e-4, atol=1e-5)
