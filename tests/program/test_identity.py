"""Programs on disk are found by what they were made from (tandem/program/identity.py)."""

import pytest

import tandem as td


@pytest.fixture
def own_cache(tmp_path):
    with td.switches(CACHE=1, CACHE_DIR=str(tmp_path)):
        yield tmp_path


def test_calls_with_one_graph_that_differ_in_gradients_are_told_apart(own_cache):
    function = td.vmap(lambda a, b: (a * 2.0, b * 3.0 + 1.0))
    for wanted in ((True, False), (False, True), (True, True), (False, False)):
        given = [td.ones(3, 4).requires_grad_(w) for w in wanted]
        made = function(*given)
        assert tuple(t.requires_grad for t in made) == wanted
        if any(wanted):
            sum(t.sum() for t in made).backward()
        expected = [k if w else None for k, w in zip((2.0, 3.0), wanted, strict=True)]
        assert [t.grad if t.grad is None else t.grad[0, 0].item() for t in given] == expected
    assert any(own_cache.rglob("*.p"))
