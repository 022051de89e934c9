"""What conftest.py does for all tests."""

import pytest

import tandem as td
from tests import conftest


def test_what_needs_lapack_is_skipped_where_there_is_none(request):
    def called(error):
        hook = conftest.pytest_runtest_call(request.node)
        next(hook)
        hook.throw(error)

    with pytest.raises(pytest.skip.Exception, match="no LAPACK"):
        called(td.UnsupportedError("cholesky", conftest.NO_LAPACK + ": there is no file"))
    with pytest.raises(td.UnsupportedError, match="something else"):
        called(td.UnsupportedError("cholesky", "something else"))
