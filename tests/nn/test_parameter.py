"""Parameters."""

import tandem as td
from tandem import nn


def test_results_of_parameters_are_plain_tensors():
    p = nn.Parameter(td.ones(2))
    assert type(p * 2) is td.Tensor and type(p.detach()) is td.Tensor
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    data = td.ones(2)
    q = nn.Parameter(data, requires_grad=False)
    data.fill_(5.0)
    assert q.tolist() == [5.0, 5.0] and not q.requires_grad
