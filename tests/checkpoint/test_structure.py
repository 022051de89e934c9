"""Nested state and its paths."""

import os

import pytest

import tandem as td
from tests.checkpoint.states import nested, same


def test_nested_state_comes_back_as_it_was(tmp_path):
    state = nested()
    td.save(state, tmp_path / "a.safetensors")
    for mmap in (False, True):
        assert same(state, td.load(tmp_path / "a.safetensors", mmap=mmap))


def test_what_was_one_tensor_is_one_again(tmp_path):
    w = td.randn(2)
    td.save({"a": w, "b": w, "c": w.clone()}, tmp_path / "a")
    found = td.load(tmp_path / "a")
    assert found["a"] is found["b"] is not found["c"]
    assert 2 == len(td.checkpoint.open(tmp_path / "a"))


def test_names_that_would_collide_are_kept_apart(tmp_path):
    state = {"a.b": td.zeros(1), "a": {"b": td.ones(1)}, "__metadata__": td.ones(2)}
    td.save(state, tmp_path / "a")
    assert same(state, td.load(tmp_path / "a"))


def test_what_is_no_state_is_refused_by_path(tmp_path):
    with pytest.raises(TypeError, match=r"the state\['a'\]\[1\] is a function"):
        td.save({"a": [1, lambda: 0]}, tmp_path / "a")
    with pytest.raises(TypeError, match=r"save x.state_dict"):
        td.save(td.nn.Linear(1, 1), tmp_path / "a")
    loop: list = []
    loop.append(loop)
    with pytest.raises(TypeError, match="contains itself"):
        td.save(loop, tmp_path / "a")
    assert [] == os.listdir(tmp_path)
