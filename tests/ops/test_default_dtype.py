"""td.set_default_dtype: what floats are unless told otherwise."""

import pytest

import tandem as td


@pytest.fixture(params=["float64", "bfloat16"])
def default(request):
    dtype = getattr(td, request.param)
    before = td.arange(3) / 2  # a plan that the change must not use
    td.set_default_dtype(dtype)
    yield dtype
    td.set_default_dtype(td.float32)
    assert (td.arange(3) / 2).dtype is before.dtype is td.float32


def test_floats_have_the_default_dtype(default):
    whole = td.arange(3)
    made = (
        td.tensor([1.5]), td.tensor(2.5), td.zeros(2), td.ones(2), td.empty(2), td.full((2,), 1.5), td.eye(2), td.rand(2),
        td.randn(2), td.linspace(0, 1, 3), td.arange(0.0, 1.0, 0.5), td.asarray([0.5]), whole / 2, whole * 1.5, td.sqrt(whole),
        td.mean(whole + 0.0), td.nn.Linear(2, 2).weight, td.nn.LayerNorm(2).weight, td.hann_window(4),
    )  # fmt: skip
    for i, t in enumerate(made):
        assert t.dtype is default, i
    assert td.get_default_dtype() is default
    assert td.compile(lambda x: x / 2)(whole).dtype is default
    assert "dtype" not in repr(td.zeros(1))
    wide = td.complex128 if default is td.float64 else td.complex64
    assert td.tensor([1j]).dtype is wide and (whole * 1j).dtype is wide


def test_tensors_keep_their_own(default):
    assert (td.zeros(2, dtype=td.float32) * 1.5).dtype is td.float32
    assert (td.arange(2) + td.zeros(2, dtype=td.float16)).dtype is td.float16
    assert td.tensor([1]).dtype is td.int64


def test_only_floats():
    with pytest.raises(td.DTypeError, match="int32 is not a floating dtype"):
        td.set_default_dtype(td.int32)


def test_resize():
    x = td.arange(6)
    assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    assert x.resize_((6,)).tolist() == [0, 1, 2, 3, 4, 5]  # the memory was kept
    assert x.resize_(3, 4).shape == (3, 4) and x.reshape(-1)[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert x.resize_as_(td.zeros(0)).shape == (0,)
    with pytest.raises(td.AutogradError, match="requires grad"):
        td.zeros(2, requires_grad=True).resize_(3)
    with pytest.raises(td.AutogradError):
        td.zeros(2, 2)[0].resize_(1)
    with pytest.raises(td.ShapeError):
        td.zeros(2).resize_(-1)
