"""Sharded tensors are tensors: made, read, printed, taken apart; what cannot be is refused."""

import copy
import pickle

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tests.distributed.sharding.ranks import P, R, S, on_mesh, sharded

X = np.arange(10, dtype=np.float32).reshape(5, 2)


def test_a_sharded_tensor_has_the_shape_of_the_whole_and_a_part_of_its_own():
    def work(mesh):
        x = sharded(X, mesh, [S(0)])
        assert isinstance(x, td.Tensor) and isinstance(x, dist.DTensor) and mesh is x.device_mesh
        return x.shape, x.to_local().tolist(), x.tolist(), x.sum().item(), bool(x[0, 1] == 1.0), np.asarray(x).tolist()

    first, second = on_mesh((2,), work)
    assert ((5, 2), X[:3].tolist(), X.tolist(), 45.0, True, X.tolist()) == first
    assert X[3:].tolist() == second[1]


def test_printing_shows_this_ranks_part_and_moves_nothing():
    def work(mesh):
        if mesh.coordinate == (0,):
            return repr(sharded([1.0, 2.0, 3.0], mesh, [S(0)]))
        return sharded([1.0, 2.0, 3.0], mesh, [S(0)]).shape

    assert "sharded(tensor([1., 2.]), shape=(3,), Mesh((2,), ('a',)), [Shard(0)])" == on_mesh((2,), work)[0]


def test_pickling_and_foreign_readers_are_refused_with_the_way_out():
    def work(mesh):
        x = sharded(X, mesh, [S(0)])
        with pytest.raises(td.ShardingError, match="full_tensor"):
            pickle.dumps(x)
        with pytest.raises((td.ValueRangeError, BufferError), match="full_tensor"):
            x.__dlpack__()
        with pytest.raises(td.ValueRangeError, match="lie on several ranks"):
            x.data_ptr()
        made = copy.deepcopy(x)
        made.add_(1.0)
        return x.numpy(), made.numpy(), made.placements

    for old, new, placements in on_mesh((2,), work):
        np.testing.assert_array_equal(old, X)
        np.testing.assert_array_equal(new, X + 1)
        assert (S(0),) == placements


def test_from_local_and_to_local_carry_gradients():
    def work(mesh):
        rank = dist.get_rank()
        local = td.tensor(X[:3] if rank == 0 else X[3:], requires_grad=True)
        x = dist.from_local(local, mesh, [S(0)], shape=(5, 2))
        (x * x).sum().backward()
        part = sharded(X, mesh, [S(0)], requires_grad=True)
        (part.to_local() * (rank + 1.0)).sum().backward()
        return local.grad.numpy(), part.grad.numpy()

    weight = np.repeat([[1.0], [1], [1], [2], [2]], 2, 1)
    for (local, part), rows in zip(on_mesh((2,), work), (X[:3], X[3:]), strict=True):
        np.testing.assert_array_equal(local, 2 * rows)
        np.testing.assert_array_equal(part, weight)


def test_what_to_do_with_gradients_of_a_replicated_tensor_has_to_be_said():
    def work(mesh):
        x = sharded(X, mesh, [R], requires_grad=True)
        with pytest.raises(td.ShardingError, match=r"grad_placements=\[Replicate\(\)\]"):
            x.to_local()
        x.to_local(grad_placements=[R]).sum().backward()
        same, x.grad = x.grad.numpy(), None
        (x.to_local(grad_placements=[P()]) * (dist.get_rank() + 1.0)).sum().backward()
        summed, x.grad = x.grad.numpy(), None
        x.full_tensor().sum().backward()
        return same, summed, x.grad.numpy()

    for same, summed, full in on_mesh((2,), work):
        np.testing.assert_array_equal(same, np.ones_like(X))
        np.testing.assert_array_equal(summed, 3 * np.ones_like(X))
        np.testing.assert_array_equal(full, np.ones_like(X))


def test_a_plain_tensor_among_sharded_ones_is_refused_unless_all_ranks_are_said_to_have_it():
    def work(mesh):
        x = sharded(X, mesh, [S(0)])
        with pytest.raises(td.ShardingError, match=r"add: argument 1 is a plain tensor \(2,\)(.|\n)*test_tensor.py"):
            x + td.ones(2)
        bias = td.ones(2, requires_grad=True)
        with dist.implicit_replication():
            y = x + bias
        y.sum().backward()
        return y.detach().numpy(), bias.grad.tolist(), (x * td.tensor(2.0)).numpy()

    for y, g, doubled in on_mesh((2,), work):
        np.testing.assert_array_equal(y, X + 1)
        np.testing.assert_array_equal(doubled, 2 * X)
        assert [5.0, 5.0] == g


def test_parts_of_the_wrong_size_are_refused():
    with pytest.raises(td.ShapeError, match=r"this rank has \(3, 2\), not \(2, 2\)"):
        on_mesh((2,), lambda mesh: dist.from_local(td.zeros(2, 2), mesh, [S(0)], shape=(5, 2)))


def test_tensors_of_different_meshes_do_not_meet():
    def work(mesh):
        other = dist.Mesh((1, 2), ("x", "y"))
        return sharded(X, mesh, [S(0)]) + sharded(X, other, [R, R])

    with pytest.raises(td.ShardingError, match=r"sharded over .* and"):
        on_mesh((2,), work)


def test_a_constraint_holds_for_the_gradient_too():
    def work(mesh):
        x = sharded(X, mesh, [R], requires_grad=True)
        seen = []
        y = dist.with_sharding_constraint(x * 1.0, dist.PartitionSpec("a"))
        y.register_hook(lambda g: seen.append(g.placements))
        (y * 2.0).sum().backward()
        return y.placements, x.grad.placements, x.grad.numpy()

    for y, g, value in on_mesh((2,), work):
        assert ((S(0),), (R,)) == (y, g)
        np.testing.assert_array_equal(value, np.full_like(X, 2.0))


def test_creating_gives_the_same_numbers_on_every_mesh():
    td.manual_seed(5)
    expected = td.rand(5, 7).numpy()
    made = dist.sharding.tensor

    def work(mesh, placements):
        td.manual_seed(5)
        return made.rand(5, 7, device_mesh=mesh, placements=placements).numpy()

    for shape, placements in (((2,), [S(0)]), ((3,), [S(1)]), ((2, 2), [S(1), S(1)]), ((2, 2), [S(0), R])):
        for values in on_mesh(shape, work, placements):
            np.testing.assert_array_equal(values, expected)
    zeros = on_mesh((2,), lambda mesh: made.zeros((4, 2), device_mesh=mesh, placements=[S(0)]).to_local().shape)
    assert [(2, 2), (2, 2)] == zeros
