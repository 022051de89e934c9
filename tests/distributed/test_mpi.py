"""MPI, begun inside any process; what ranks do with it is in test_network.py."""

import pytest

import tandem as td
from tandem.distributed import mpi, pmi
from tandem.distributed.store import EpochError, Service, Store


def test_pmi_answers_what_libraries_ask():
    """The lines of PMI-1, of two ranks at one store."""
    service = Service()
    try:
        ranks = [pmi.Service(Store(service.address), r, 2) for r in range(2)]
        answer = [r._answer for r in ranks]
        assert answer[1]("cmd=initack pmiid=1") == [
            "cmd=initack rc=0", "cmd=set size=2", "cmd=set rank=1", "cmd=set debug=0",
        ]  # fmt: skip
        assert answer[0]("cmd=init pmi_version=1 pmi_subversion=1")[0].endswith("pmi_subversion=1 rc=0")
        answer[0]("cmd=put kvsname=tandem key=card value=a=1 b=2")
        assert answer[1]("cmd=get kvsname=tandem key=card") == ["cmd=get_result rc=0 msg=_ value=a=1 b=2"]
        assert "rc=-1" in answer[1]("cmd=get kvsname=tandem key=none")[0]
        assert answer[0]("cmd=get kvsname=tandem key=PMI_process_mapping")[0].endswith("value=(vector,(0,2,1))")
        assert "rc=-1" in answer[0]("cmd=spawn")[0]
    finally:
        service.close()


def test_the_service_tells_of_a_lost_connection():
    service = Service()
    try:
        store, other = Store(service.address), Store(service.address)
        epoch = store.epoch()
        other.attend("rank 1")
        other.depart()
        assert store.epoch() == epoch
        other.attend("rank 2")
        other.depart()
        other.attend("rank 2")  # of the next attempt
        assert store.attending() == ["rank 2"]
        other._attended.pop()[1].close()
        with pytest.raises(EpochError, match="rank 2 failed"):
            store.get("never", since=epoch, timeout=20)
        store.bump("rank 0 failed (rank 2 failed ...)")  # which follows from it
        with pytest.raises(EpochError, match=r"^rank 2 failed"):  # also when it was lost before
            store.get("never", since=epoch, timeout=20)
    finally:
        service.close()


def test_without_a_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(mpi, "find_library", lambda: None)
    with pytest.raises(td.UnsupportedError, match=r"2 hosts, and there is no MPI library(?s:.)*pip install"):
        mpi._begin(None, 0, ["a", "b"])
