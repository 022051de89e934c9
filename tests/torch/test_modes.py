"""What programs ask of PyTorch's state, with the answers that hold here."""

import pytest

import tandem as td
import tandem.torch as torch


def test_autocast_says_its_type():
    assert (torch.get_autocast_dtype("cpu"), torch.get_autocast_dtype("cuda")) == (td.bfloat16, td.float16)
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.get_autocast_dtype("cpu") is torch.get_autocast_cpu_dtype() is td.float16
        assert torch.get_autocast_gpu_dtype() is td.float16
        assert torch.is_autocast_cpu_enabled()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.get_autocast_dtype("cuda:0") is td.bfloat16
    assert not torch.is_autocast_cpu_enabled()
    torch.clear_autocast_cache()


def test_casts_that_pytorch_allows():
    allowed = {
        ("int64", "uint8"),
        ("float64", "float16"),
        ("float16", "complex64"),
        ("bool", "int8"),
        ("complex128", "complex64"),
    }
    refused = {("float32", "int64"), ("complex64", "float64"), ("uint8", "bool"), ("float16", "bool")}
    for a, b in allowed | refused:
        assert torch.can_cast(getattr(torch, a), getattr(torch, b)) is ((a, b) in allowed), (a, b)
    assert torch.can_cast(torch.ones(1, dtype=torch.int64), torch.int8)
    assert not td.can_cast(td.int64, td.int8)  # the standard asks whether promotion goes there


def test_anomaly_detection_says_whether_it_is_on():
    assert not torch.is_anomaly_enabled()
    with torch.autograd.detect_anomaly():
        assert torch.is_anomaly_enabled()


def test_types_of_layouts_and_formats():
    assert isinstance(torch.strided, torch.layout)
    assert isinstance(torch.channels_last, torch.memory_format)


def test_conjugates_are_computed():
    x = torch.tensor([1j]).conj()
    assert not torch.is_conj(x)
    assert torch.resolve_conj(x).tolist() == [-1j]


@pytest.mark.parametrize("space", [td, torch])
def test_python_types_name_the_types_that_numpy_gives_them(space):
    assert space.zeros(2, dtype=float).dtype is td.float64
    assert space.ones(2).to(complex).dtype is td.complex128
    assert space.zeros(2, dtype=int).dtype is td.int64
    assert space.zeros(2, dtype=bool).dtype is td.bool
    assert space.ones(2).sum(dtype=float).dtype is td.float64


def test_rows_from_the_last_to_the_first():
    x = torch.arange(6).reshape(3, 2)
    assert reversed(x).tolist() == [[4, 5], [2, 3], [0, 1]]
    assert reversed(torch.tensor(1)).item() == 1
