"""Searches have time enough on a busy machine, so that what they find does not depend on it."""

import pytest

import tandem as td


@pytest.fixture(autouse=True)
def time_enough(monkeypatch):
    monkeypatch.setitem(td.distributed.place.__kwdefaults__, "time_limit", 120.0)
