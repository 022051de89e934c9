"""Tensors as text: columns stand below each other, and what is too long is summarised."""

import pytest

import tandem as td


@pytest.fixture(autouse=True)
def default_options():
    yield
    td.set_printoptions(profile="default")


def lines(*rows: str) -> str:
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([[1.5, -2.25], [100.0, float("nan")]], lines("tensor([[  1.5000,  -2.2500],", "        [100.0000,      nan]])")),
        ([1.0, -20.0, float("inf")], "tensor([  1., -20.,  inf])"),
        ([float("-inf"), 0.0], "tensor([-inf,   0.])"),
        ([-0.0, 0.0], "tensor([-0.,  0.])"),
        ([1e-6, -1.0], "tensor([ 1.0000e-06, -1.0000e+00])"),
        ([1e9, 2.0], "tensor([1.0000e+09, 2.0000e+00])"),
        ([[1, -20], [300, 4]], lines("tensor([[  1, -20],", "        [300,   4]])")),
        ([True, False], "tensor([ True, False])"),
        ([1 + 2j, -3.5 - 10j], "tensor([ 1.0000 +2.0000j, -3.5000-10.0000j])"),
        ([1j, -10.0 + 0j], "tensor([  0.+1.j, -10.+0.j])"),
        (-3.25, "tensor(-3.2500)"),
        (True, "tensor(True)"),
        ([], "tensor([])"),
        ([[[1], [-2]], [[3], [4]]], lines("tensor([[[ 1],", "         [-2]],", "", "        [[ 3],", "         [ 4]]])")),
    ],
)  # fmt: skip
def test_columns_are_aligned(data, expected):
    assert repr(td.tensor(data)) == expected


def test_what_follows_the_numbers():
    assert (
        repr(td.tensor([1.0, -1.0], dtype=td.float64, requires_grad=True))
        == "tensor([ 1., -1.], dtype=float64, requires_grad=True)"
    )
    assert repr(td.tensor([1, -1], dtype=td.int8)) == "tensor([ 1, -1], dtype=int8)"
    assert repr(td.ones(2, requires_grad=True) * -1).startswith("tensor([-1., -1.], grad_fn=<")
    assert repr(td.zeros(0, 3)) == "tensor([], shape=(0, 3))"
    assert repr(td.zeros(50_000_000, 0)) == "tensor([], shape=(50000000, 0))"  # at once: there is nothing to look at


def test_long_tensors_are_summarised():
    # The elements shown decide on the width; those left out do not count.
    assert repr(td.arange(2000)) == "tensor([   0,    1,    2, ..., 1997, 1998, 1999])"
    x = td.zeros(2000)
    x[1000] = 12345.0
    assert repr(x) == "tensor([0., 0., 0., ..., 0., 0., 0.])"
    rows = repr(td.arange(10000.0).reshape(100, 100)).splitlines()
    assert rows[0] == "tensor([[   0.,    1.,    2., ...,   97.,   98.,   99.],"
    assert rows[3] == "        ..." + "," and len(rows) == 7 and {len(rows[0]), len(rows[1])} == {len(rows[5])}


def test_options():
    x = td.tensor([[0.125, -1.0]])
    td.set_printoptions(precision=2)
    assert repr(x) == "tensor([[ 0.12, -1.00]])"
    td.set_printoptions(sci_mode=True)
    assert repr(x) == "tensor([[ 1.25e-01, -1.00e+00]])"
    td.set_printoptions(profile="default")
    td.set_printoptions(threshold=4, edgeitems=1)
    assert repr(td.arange(6) - 3) == "tensor([-3, ...,  2])"
    td.set_printoptions(profile="default")
    td.set_printoptions(linewidth=20)
    assert repr(td.arange(8)) == lines("tensor([0, 1, 2, 3,", "        4, 5, 6, 7])")
