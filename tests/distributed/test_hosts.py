"""Launchers of several hosts."""

from tandem.distributed.hosts import HostGang
from tandem.distributed.store import Service, Store


def test_failures_of_an_attempt_that_another_host_has_forgotten_are_passed_over():
    """Launchers that start again delete what they were told, each when it gets there: nobody waits for a key that is gone."""
    service = Service()

    class Racing(Store):
        def keys(self):
            names = super().keys()
            self.delete_key("failure/0")
            return names

    try:
        store = Racing(service.address, timeout=1.0)
        store.set("failure/0", "ValueError: no data")
        store.set("failure/3", "ValueError: no space")
        gang = object.__new__(HostGang)
        gang.store = store
        assert gang.told_failures() == {"failure/3": "ValueError: no space"}
    finally:
        service.close()
