"""Meshes: ranks in a grid with named axes."""

import pytest

import tandem as td
from tandem import distributed as dist
from tests.distributed.sharding.ranks import on_mesh


def test_a_rank_knows_its_place_and_its_groups():
    def work(mesh):
        return mesh.get_coordinate(), mesh.get_group("a").ranks, mesh.get_group("b").ranks, mesh.size("b"), mesh.size()

    made = on_mesh((2, 2), work)
    assert [((0, 0), (0, 2), (0, 1), 2, 4), ((0, 1), (1, 3), (0, 1), 2, 4)] == made[:2]


def test_a_part_of_a_mesh_shares_its_groups():
    def work(mesh):
        part = mesh["b"]
        assert part.get_group() is mesh.get_group("b")
        return part.ranks, part.get_coordinate(), repr(part)

    assert [((0, 1), (0,), "Mesh((2,), ('b',))"), ((0, 1), (1,), "Mesh((2,), ('b',))")] == on_mesh((2, 2), work)[:2]


def test_meshes_of_the_same_ranks_are_equal_and_make_no_new_groups():
    def work(mesh):
        other = dist.init_device_mesh("cpu", (3,), mesh_dim_names=("a",))
        return other == mesh and hash(other) == hash(mesh) and other.groups == mesh.groups

    assert all(on_mesh((3,), work))


@pytest.mark.parametrize("shape, names, text", [((2,), ("a", "b"), "one different name"), ((3,), None, "there are 2")])
def test_a_mesh_that_cannot_be_says_why(shape, names, text):
    with pytest.raises(td.ValueRangeError, match=text):
        dist.spawn(lambda: dist.Mesh(shape, names), 2, engine="threads")


def test_an_axis_that_is_not_there_is_named():
    with pytest.raises(td.ValueRangeError, match="no axis 'z'; its axes are"):
        on_mesh((1,), lambda mesh: mesh.size("z"))
