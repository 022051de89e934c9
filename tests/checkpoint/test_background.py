"""Saving in the background."""

import pytest

import tandem as td

# -- in the background


def test_a_save_in_the_background_is_of_the_moment_it_was_asked_for(tmp_path):
    w = td.zeros(100_000)
    pending = td.checkpoint.save_async({"w": w}, tmp_path / "a")
    w += 1
    pending.wait()
    assert pending.done()
    assert 0.0 == float(td.load(tmp_path / "a")["w"].sum())


def test_an_error_in_the_background_that_nobody_asks_for_is_a_warning(tmp_path):
    pending = td.checkpoint.save_async(td.zeros(1), tmp_path / "no" / "a")
    pending._thread.join()
    with pytest.warns(ResourceWarning, match=r"saving .* failed"):
        del pending
