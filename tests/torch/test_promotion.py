"""Tensors without axes: PyTorch's promotion where tandem.torch is imported, the Array API standard's elsewhere."""

import subprocess
import sys
import textwrap

import pytest

import tandem as td
import tandem.torch as torch

CASES = [  # with axes, without, PyTorch's result, the standard's
    ("float32", "float64", "float32", "float64"),
    ("float16", "float32", "float16", "float32"),
    ("bfloat16", "float16", "bfloat16", "float32"),
    ("int32", "int64", "int32", "int64"),
    ("uint8", "int8", "uint8", "int16"),
    ("complex64", "float64", "complex64", "complex128"),
    ("float32", "complex128", "complex64", "complex128"),
    ("int32", "float64", "float64", "float64"),
    ("bool", "int8", "int8", "int8"),
    ("float32", "int64", "float32", "float32"),
]


def made(with_axes: str, without: str):
    return td.ones(3, dtype=with_axes), td.full((), 2, dtype=without)


@pytest.mark.parametrize(("with_axes", "without", "pytorchs", "standards"), CASES)
def test_the_program_decides(with_axes, without, pytorchs, standards):
    x, h = made(with_axes, without)
    for result in (x * h, h + x, torch.sub(x, h, alpha=1) if with_axes != "bool" else x * h, torch.result_type(x, h)):
        assert str(getattr(result, "dtype", result)) == pytorchs
    elsewhere = {"__name__": "elsewhere", "td": td, "x": x, "h": h}
    exec("results = [x * h, td.add(h, x)]; dtype = td.result_type(x, h)", elsewhere)  # a module without tandem.torch
    assert {str(r.dtype) for r in elsewhere["results"]} == {standards} == {str(elsewhere["dtype"])}
    assert str((x * h).dtype) == pytorchs  # the plan that was made meanwhile is another one


def test_compiled_mapped_and_in_place():
    x, h = made("float32", "float64")

    @td.compile
    def step(x, h):
        return (x * h).sum() + torch.where(x > 0, x, h)

    for _ in range(3):
        assert step(x, h).dtype is torch.float32
    assert td.vmap(lambda row: row * h)(td.ones(2, 3)).dtype is torch.float32
    x /= h
    assert x.tolist() == [0.5, 0.5, 0.5]


def test_gradients_have_the_dtypes_of_their_tensors():
    x, h = made("float32", "float64")
    x.requires_grad_()
    h.requires_grad_()
    (x * h).sum().backward()
    assert (x.grad.dtype, x.grad.tolist()) == (torch.float32, [2.0, 2.0, 2.0])
    assert (h.grad.dtype, h.grad.item()) == (torch.float64, 3.0)


def test_a_process_with_install_follows_pytorch_everywhere():
    program = """
        import tandem.torch
        tandem.torch.install()
        del tandem
        import torch
        names = {"__name__": "helper", "x": torch.ones(3), "h": torch.tensor(2.0, dtype=torch.float64)}
        del torch
        exec("y = x * h", names)
        print(names["y"].dtype)
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert out.stdout == "float32\n"


def test_nothing_is_asked_before_tandem_torch_is_imported():
    program = "import tandem as td; print((td.ones(3) * td.tensor(2.0, dtype=td.float64)).dtype)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout == "float64\n"
