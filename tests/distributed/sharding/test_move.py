"""Redistribution: from any placement to any other, with sizes that do not divide evenly."""

import itertools

import numpy as np
import pytest

from tandem import distributed as dist
from tests.distributed.sharding.ranks import P, R, S, on_mesh, sharded

X = np.arange(35, dtype=np.float32).reshape(5, 7)


@pytest.mark.parametrize("shape", [(2,), (3,), (2, 2)])
def test_elements_stay_what_they_are(shape):
    ways = list(itertools.product([R, S(0), S(1), P()], repeat=len(shape)))
    pairs = (
        list(itertools.product(ways, ways)) if len(shape) == 1 else [(a, b) for a in ways for b in ways[:: 1 + len(a)]]
    )

    def work(mesh):
        for old, new in pairs:
            x = sharded(X, mesh, old)
            assert new == x.redistribute(placements=new).placements
            np.testing.assert_array_equal(x.redistribute(placements=new).numpy(), X, err_msg=f"{old} to {new}")

    on_mesh(shape, work)


def test_one_collective_does_where_one_can():
    def work(mesh):
        made = []
        for old, new in ((S(0), R), (P(), R), (P(), S(1)), (S(0), S(1)), (R, S(0)), (R, P())):
            x = sharded(X, mesh, [old])
            with dist.sharding_report() as report:
                x.redistribute(placements=[new])
            made.append(report.collectives)
        return made

    expected = [{"all_gather": 1}, {"all_reduce": 1}, {"reduce_scatter": 1}, {"all_to_all": 1}, {}, {}]
    assert expected == on_mesh((2,), work)[0]


def test_an_axis_that_several_mesh_axes_divide_is_divided_by_the_first_one_first():
    def work(mesh):
        return sharded(X, mesh, [S(0), S(0)]).to_local().numpy()[:, 0].tolist()

    assert [[0.0, 7.0], [14.0], [21.0], [28.0]] == on_mesh((2, 2), work)


def test_gradients_go_back_the_way_they_came():
    def work(mesh, old, new):
        x = sharded(X, mesh, [old], requires_grad=True)
        (x.redistribute(placements=[new]) * 3.0).sum().backward()
        return x.grad.placements, x.grad.numpy()

    for old, new in itertools.product([R, S(0), S(1)], [R, S(0), S(1), P()]):
        for placements, g in on_mesh((3,), work, old, new):
            assert (old,) == placements
            np.testing.assert_array_equal(g, np.full_like(X, 3.0))
