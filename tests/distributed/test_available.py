"""What there is."""

import pytest

import tandem as td
from tandem import distributed as dist


def test_what_there_is(monkeypatch):
    assert (
        dist.is_gloo_available()
        and isinstance(dist.is_mpi_available(), bool)
        and isinstance(dist.is_nccl_available(), bool)
    )
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert dist.get_node_local_rank() == 3
    monkeypatch.delenv("LOCAL_RANK")
    assert dist.get_node_local_rank(7) == 7
    with pytest.raises(td.ValueRangeError, match="LOCAL_RANK"):
        dist.get_node_local_rank()


def test_backends_are_compared_by_name():
    assert dist.Backend("GLOO") == dist.Backend.GLOO == "gloo"
    assert dist.Backend.NCCL != "gloo"
