"""tandem.torch: PyTorch's names with PyTorch's results, and packages that ask for torch."""

import subprocess
import sys
import textwrap

import pytest

import tandem as td
import tandem.torch as torch


def test_functions_have_pytorchs_results():
    x = torch.tensor([[3.0, 1.0], [2.0, 2.0]])
    assert torch.std(torch.tensor([1.0, 2.0, 3.0])).item() == 1.0
    assert torch.var(x, 0).tolist() == [0.5, 0.5] and torch.var(x, dim=0, correction=0).tolist() == [0.25, 0.25]
    assert torch.equal(x, x) is True and torch.equal(x, x[:1]) is False
    assert torch.nonzero(torch.tensor([0, 5])).tolist() == [[1]]
    assert [t.tolist() for t in torch.nonzero(torch.tensor([0, 5]), as_tuple=True)] == [[1]]
    assert torch.sort(x).indices.tolist() == [[1, 0], [0, 1]]
    assert torch.max(x, 1).values.tolist() == [3.0, 2.0] and torch.max(x).item() == 3.0
    assert torch.min(input=x, dim=0, keepdim=True).indices.tolist() == [[1, 0]]
    assert torch.max(x, torch.tensor(2.0)).tolist() == [[3.0, 2.0], [2.0, 2.0]]
    assert [g.shape for g in torch.meshgrid(torch.arange(2), torch.arange(3))] == [(2, 3), (2, 3)]
    assert torch.take(x, torch.tensor([3, 0])).tolist() == [2.0, 3.0]


def test_the_main_namespace_stays_the_standards():
    x = td.tensor([1.0, 2.0, 3.0])
    assert td.std(x).item() == pytest.approx(0.8165, abs=1e-4)
    assert td.equal(x, x).tolist() == [True, True, True]
    assert td.sort(x).tolist() == [1.0, 2.0, 3.0]


def test_memory_formats_are_taken_everywhere():
    x = torch.ones(2, 3, 4, 5)
    last = torch.channels_last
    for made in (x.clone(memory_format=last), torch.zeros_like(x, memory_format=last), x.double(memory_format=last)):
        assert made.stride() == (60, 1, 15, 3)
    assert (
        torch.empty_like(x, memory_format=torch.preserve_format, layout=None, pin_memory=False).stride() == x.stride()
    )
    assert x.int(memory_format=torch.contiguous_format).dtype is torch.int32


def test_out_takes_results():
    values, indices = torch.zeros(2), torch.zeros(2, dtype=torch.int64)
    torch.max(torch.tensor([[1.0, 5.0], [7.0, 2.0]]), 1, out=(values, indices))
    assert values.tolist() == [5.0, 7.0] and indices.tolist() == [1, 0]


def test_modules_are_tandems_own():
    import tandem.torch.nn as nn
    import tandem.torch.nn.functional as F
    import tandem.torch.utils.data

    assert nn is td.nn and F is td.nn.functional and tandem.torch.utils.data.DataLoader is td.data.DataLoader
    assert td.nn.__spec__.name == "tandem.nn" and torch.optim.SGD is td.optim.SGD
    with pytest.raises(ModuleNotFoundError):
        import tandem.torch.no_such_module
    with pytest.raises(AttributeError, match=r"docs/pytorch\.md"):
        torch.no_such_function


def test_typed_constructors():
    assert (
        torch.Tensor([1, 2]).dtype is torch.float32
        and torch.Tensor(2, 3).shape == (2, 3)
        and torch.Tensor().shape == (0,)
    )
    assert torch.FloatTensor([[1, 2]]).tolist() == [[1.0, 2.0]] and torch.LongTensor(4).dtype is torch.int64
    assert torch.Tensor(torch.Size((2, 3))).shape == (2, 3)
    assert isinstance(torch.ones(1), torch.FloatTensor) and not isinstance(torch.ones(1), torch.LongTensor)
    x = torch.ones(2, dtype=torch.int64)
    assert x.new([1, 2]).dtype is torch.int64 and x.new(2, 3).shape == (2, 3)
    assert x.type() == "torch.LongTensor" and x.type("torch.FloatTensor").dtype is torch.float32
    assert x.type(torch.DoubleTensor).dtype is torch.float64 and x.type(torch.int8).dtype is torch.int8
    with pytest.raises(TypeError):
        torch.Tensor([1], [2])


def test_a_subclass_of_tensor_is_made_by_calling_it():
    class Marked(torch.Tensor):
        pass

    made = Marked([1.0, 2.0])
    assert type(made) is Marked and made.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("call, kind", [
    (lambda: torch.ones(2) + torch.ones(3), RuntimeError),
    (lambda: torch.ones(2, 3) @ torch.ones(2, 3), RuntimeError),
    (lambda: torch.ones(2).index_select(0, torch.tensor([5])), (RuntimeError, IndexError)),
    (lambda: torch.ones(2)[5], IndexError),
    (lambda: torch.ones(2).sum(3), IndexError),
    (lambda: torch.nn.Linear(2, 2)(torch.ones(1, 3)), RuntimeError),
    (lambda: torch.empty(2**60), RuntimeError),
    (lambda: torch.ones(2).view(3), RuntimeError),
    (lambda: torch.ones(1, requires_grad=True).numpy(), RuntimeError),
    (lambda: torch.nn.functional.interpolate(torch.ones(1, 1, 2, 2, dtype=torch.int64), (3, 3), mode="bilinear"),
     NotImplementedError),
])  # fmt: skip
def test_exceptions_are_of_pytorchs_classes(call, kind):
    with pytest.raises(kind):
        call()


def run(program: str) -> str:
    made = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_installed_it_is_what_packages_import():
    out = run("""
        import tandem.torch
        tandem.torch.install()
        tandem.torch.install()
        import torch, torch.nn as nn
        import torch.utils.data
        from torch.nn import functional as F
        from torch.nn.modules.batchnorm import _BatchNorm
        from torch.optim.lr_scheduler import LambdaLR
        from importlib.metadata import version
        import tandem as td
        assert torch is tandem.torch and nn is td.nn and isinstance(nn.BatchNorm1d(2), _BatchNorm)
        assert td.nn.__name__ == td.nn.__spec__.name == "tandem.nn"
        assert version("torch") == torch.__version__
        print(torch.__version__.split("+")[1])
    """)
    assert out.strip() == "tandem"


def test_it_is_not_installed_beside_pytorch():
    out = run("""
        import sys, types
        sys.modules["torch"] = types.ModuleType("torch")
        import tandem.torch
        try:
            tandem.torch.install()
        except ImportError as error:
            print(error)
    """)
    assert "imported already" in out
