"""What is left out says what to use."""

import pytest

import tandem.torch as torch


@pytest.mark.parametrize(("name", "advice"), [("_inductor", "td.compile"), ("package", "td.export.save")])
def test_what_is_left_out_says_what_to_use(name, advice):
    with pytest.raises(AttributeError, match=advice):
        getattr(torch, name)
