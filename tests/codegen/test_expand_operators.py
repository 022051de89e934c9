"""expand_operators: what has no routine or kernel on a target is written in what has."""

import numpy as np

import tandem.ops as F
from tandem.codegen.targets import target_of
from tandem.ops.attention import Attention
from tandem.ops.rearrange import Roll
from tests.codegen.lowering import lowered, names

X = np.ones((3, 4), np.float32)


def test_composites_become_what_they_are_made_of():
    assert "softmax" not in names(lowered(lambda x: F.Softmax((1,))(x), [X], "expand_operators"))


def test_an_operator_that_one_kind_of_target_has_stays_there_alone():
    roll = lambda x: Roll((1,), (0,))(x)
    assert names(lowered(roll, [X], "expand_operators")) == ["roll"]
    assert "roll" not in names(lowered(roll, [X], "expand_operators", target=target_of(1)))


def test_sums_of_complex_numbers_are_sums_of_their_parts():
    made = names(lowered(lambda x: F.Reduce("sum", (1,))(x), [X.astype(np.complex64)], "expand_operators"))
    assert made.count("reduce") == 2 and "complex" in made


def test_a_large_search_of_what_comes_row_major_is_a_routine():
    search = lambda x: F.Reduce("argmax", (1,))(x)
    assert names(lowered(search, [X], "expand_operators")) == ["arg_extremum"]
    assert names(lowered(search, [X.T.copy().T], "expand_operators")) == ["reduce"]


def test_attention_without_a_kernel_of_ours_is_products_and_a_softmax():
    q = np.ones((1, 2, 5, 7), np.float32)
    attention = lambda q, k, v: Attention(False, False, 1.0)(q, k, v)[0]
    made = names(lowered(attention, [q.astype(np.float64)] * 3, "expand_operators", target=target_of(1)))
    assert made.count("matmul") == 2 and "attention" not in made
