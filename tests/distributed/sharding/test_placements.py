"""Placements, and PartitionSpecs as another way to say them."""

import pytest

import tandem as td
from tandem import distributed as dist
from tests.distributed.sharding.ranks import P, R, S, on_mesh, sharded


def test_a_partition_spec_says_which_mesh_axis_divides_an_axis():
    def work(mesh):
        spec = dist.PartitionSpec
        cases = [
            (spec("a"), (S(0), R)),
            (spec(None, "b"), (R, S(1))),
            (spec(("a", "b")), (S(0), S(0))),
            (spec(), (R, R)),
        ]
        for given, expected in cases:
            x = dist.distribute_tensor(td.zeros(4, 4), mesh, given)
            assert expected == x.placements
            assert dist.NamedSharding(mesh, x.sharding.spec) == x.sharding
        return dist.distribute_tensor(td.zeros(4, 4), mesh, [S(-1), R]).placements

    assert (S(1), R) == on_mesh((2, 2), work)[0]


def test_placements_are_values():
    assert len({S(0), S(0), S(1), R, dist.Replicate(), P(), P("max")}) == 5
    assert [True, False, True] == [S(0) == S(0), R == P(), P(dist.ReduceOp.SUM) == P("sum")]
    assert S(1).is_shard(1) and not S(1).is_shard(0) and R.is_replicate() and P().is_partial()


@pytest.mark.parametrize("given, error, text", [
    ([S(0), R], td.ValueRangeError, "2 placements .* for a mesh with 1 axes"),
    ([S(2)], td.ShapeError, r"Shard\(2\) of a tensor with 2 axes"),
    (["x"], td.ValueRangeError, "'x' is no placement"),
    (dist.PartitionSpec("z"), td.ValueRangeError, "no axis 'z'"),
    (dist.PartitionSpec("a", "a"), td.ValueRangeError, "twice"),
])  # fmt: skip
def test_placements_that_mean_nothing_are_refused(given, error, text):
    with pytest.raises(error, match=text):
        on_mesh((1,), lambda mesh: dist.distribute_tensor(td.zeros(2, 2), mesh, given))


def test_a_partial_tensor_has_no_spec():
    assert on_mesh((2,), lambda mesh: sharded([1.0], mesh, [P()]).sharding) == [None, None]
