"""What deferred graphs say about sizes that nobody knows yet, and about what is not a feed."""

import pytest

import tandem as td


def test_unknown_sizes_are_none_in_errors():
    with td.Graph():
        a = td.placeholder(td.float32, (None, None))
        with pytest.raises(td.ShapeError, match=r"x is \(3, None, 3\) and y is \(7,\)"):
            a @ td.ones(3, 3, 3) @ td.ones(7)


def test_len_is_that_of_the_first_axis_where_it_is_known():
    with td.Graph():
        assert len(td.placeholder(td.float32, (4, None))) == 4
        with pytest.raises(td.UnsupportedError, match="axis 0 of 'rows:0' is unknown"):
            len(td.placeholder(td.float32, (None,), name="rows"))
        with pytest.raises(TypeError, match="without axes"):
            len(td.placeholder(td.float32, ()))


def test_feeds_must_be_a_dict():
    with td.Graph():
        x = td.placeholder(td.float32, ())
        with pytest.raises(td.DTypeError, match="feed_dict is a list, not a dict"):
            td.Session().run(x, [1])
