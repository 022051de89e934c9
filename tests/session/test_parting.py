"""dynamic_partition and dynamic_stitch in deferred graphs: as in eager code, gradients included."""

import numpy as np
import pytest

import tandem as td


def dealt(graph, count=3):
    with graph:
        x = td.placeholder(td.float32, (None, 2), name="x")
        to = td.placeholder(td.int64, (None,), name="to")
        parts = td.dynamic_partition(x, to, count)
        places = td.dynamic_partition(td.cumsum(td.ones_like(to), 0) - 1, to, count)
        whole = td.dynamic_stitch(places, [p * (k + 1.0) for k, p in enumerate(parts)])
        (slope,) = td.gradients((whole * whole).sum(), [x])
    return x, to, parts, whole, slope


@pytest.mark.parametrize("to", [[0, 2, 2, 0, 1], [1, 1, 1], []])
def test_rows_are_dealt_out_and_put_together_as_in_eager_code(to):
    graph = td.Graph()
    x, numbers, parts, whole, slope = dealt(graph)
    to = np.array(to, dtype=np.int64)
    rows = np.arange(2 * len(to), dtype=np.float32).reshape(-1, 2)
    session = td.Session(graph)
    *found, together, gradient = session.run([*parts, whole, slope], {x: rows, numbers: to})
    for a, b in zip(found, td.dynamic_partition(td.tensor(rows), td.tensor(to), 3), strict=True):
        assert a.tolist() == b.tolist() and a.shape == b.shape
    np.testing.assert_allclose(together.numpy(), rows * (to + 1)[:, None])
    np.testing.assert_allclose(gradient.numpy(), 2 * rows * ((to + 1) ** 2)[:, None])


def test_the_last_of_several_counts_and_rows_that_nobody_names_are_zero():
    with td.Graph() as graph:
        places, values = (
            td.placeholder(td.int64, (None,), name="places"),
            td.placeholder(td.float32, (None,), name="values"),
        )
        whole = td.dynamic_stitch([places, td.tensor([6])], [values, td.tensor([9.0])])
    fed = {places: [1, 1, 4], values: [1.0, 2.0, 3.0]}
    assert td.Session(graph).run(whole, fed).tolist() == [0, 2, 0, 0, 3, 0, 9]


def test_numbers_that_name_no_part_are_refused_at_the_line():
    graph = td.Graph()
    x, to, _, whole, _ = dealt(graph)
    session = td.Session(graph)
    for wrong in (3, -1):
        with pytest.raises(
            td.IndexRangeError, match=f"dynamic_partition: index {wrong} is out.*\\n  at .*test_parting.py"
        ):
            session.run(whole, {x: [[1.0, 2.0]], to: [wrong]})
    with td.Graph() as graph:
        place = td.placeholder(td.int64, (1,), name="place")
        stitched = td.dynamic_stitch([place], [td.ones(1)])
    with pytest.raises(td.IndexRangeError, match="index -2 is negative"):
        td.Session(graph).run(stitched, {place: [-2]})


def test_a_graph_that_deals_rows_out_is_saved():
    graph = td.Graph()
    whole = dealt(graph)[3]
    again = td.Graph.from_json(graph.to_json())
    fed = {"x": [[1.0, 2.0], [3.0, 4.0]], "to": [2, 0]}
    assert td.Session(again).run(whole.name, fed).tolist() == [[3, 6], [3, 4]]
