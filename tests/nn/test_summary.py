"""The table of a module: shapes and counts."""

import tandem as td
from tandem import nn
from tests.nn.cases import Model


def test_summary_shows_shapes_and_counts():
    m = Model()
    m.layers[0].requires_grad_(False)
    s = m.summary(td.ones(3, 4))
    assert str(s).splitlines() == [
        "module      type        output  parameters",
        "            Model       (3, 2)          58",
        "layers      ModuleList  -               48",
        "  0         Block       (3, 4)          24",
        "    linear  Linear      (3, 4)          20",
        "  1         Block       (3, 4)          24",
        "    linear  Linear      (3, 4)          20",
        "out         Linear      (3, 2)          10",
        "58 parameters (232 bytes), 34 trainable",
    ]
    assert m.training and (s.total, s.trainable) == (58, 34)
    assert nn.LSTM(2, 3).summary(td.ones(4, 1, 2)).rows[0].output == [(4, 1, 3), [(1, 1, 3), (1, 1, 3)]]
    assert nn.Linear(2, 2).summary().rows[0].output is None
