"""Sessions of the classic API."""

import pytest

import tandem.v1 as tf


def test_partial_runs_are_refused_with_the_way_to_write_them():
    with tf.Session() as session, pytest.raises(AttributeError, match="one run that fetches"):
        session.partial_run_setup([], [])
