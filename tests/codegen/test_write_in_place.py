"""write_in_place, copy_mutations: results that become the contents of an input."""

import numpy as np
import pytest

import tandem as td
from tandem.codegen import lower
from tandem.ops.movement import Permute
from tandem.switches import switches
from tests.codegen.lowering import lowered
from tests.codegen.ops import add, mul
from tests.codegen.run_schedule import build, run

X = np.arange(30, dtype=np.float32).reshape(5, 6)


def test_an_elementwise_kernel_writes_over_what_it_reads():
    lowering = lowered(lambda x: add(x, 1.0), [X], "copy_mutations", mutate={0: 0})
    assert lowering.written == {0} and lowering.copies == []


def test_what_reads_other_elements_is_copied_at_the_end():
    square = np.ones((5, 5), np.float32)
    lowering = lowered(lambda x: add(Permute((1, 0))(x), 1.0), [square], "copy_mutations", mutate={0: 0})
    assert lowering.written == set() and len(lowering.copies) == 1


def test_inputs_that_change_places_are_kept_first():
    lowering = lowered(lambda x, y: (y, x), [X, X.copy()], "copy_mutations", mutate={0: 0, 1: 1})
    assert len(lowering.steps) == 2 and len(lowering.copies) == 2


@pytest.mark.parametrize("skip", ["", "write_in_place"])
def test_results_are_the_same_without_it(skip):
    x, before = X.copy(), X.copy()
    with switches(SKIP=skip):
        trace = build(lambda a: (add(a, 1.0), mul(a, 2.0)), [x], mutate={0: 0})
        (doubled,) = run(lower(trace.graph, trace.layouts), trace.graph, [x])
    np.testing.assert_array_equal(x, before + 1)
    np.testing.assert_array_equal(doubled, before * 2)


def test_a_routine_that_reads_a_view_of_what_a_scatter_wrote_sees_it():
    rows, w = td.arange(2)[:, None], td.randn(2, 4, 5)
    x, places = td.randn(2, 1, 3), td.tensor([[1], [3]])

    def step(store):
        store[rows, places] = x
        return store[:, :4].mT @ w

    start = td.randn(2, 6, 3)
    stores = [start.clone(), start.clone()]
    expected, got = step(stores[0]), td.compile(step)(stores[1])
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6)
    np.testing.assert_array_equal(stores[1].numpy(), stores[0].numpy())
