"""Errors, eagerly and compiled."""

import pytest

import tandem as td


def both(fn, *args):
    for run in (fn, td.compile(fn)):
        with pytest.raises(td.TandemError) as caught:
            run(*args)
        yield str(caught.value)
