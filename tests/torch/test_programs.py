"""What programs and packages written for PyTorch ask for: found by running them with tandem.torch in the place of torch."""

import warnings
from typing import TypeVar

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
import tandem.torch as torch
from tandem import nn
from tandem.data import main_guard
from tests.torch.scripts import run


def test_what_the_tracer_is_told_changes_nothing():
    torch._dynamo.config.suppress_errors = True
    assert torch._dynamo.config.suppress_errors is True and torch._dynamo.config.cache_size_limit is None
    assert torch._dynamo.allow_in_graph(abs) is abs
    with pytest.raises(AttributeError, match="explain"):
        _ = torch._dynamo.explain_everything
    with torch._C.DisableTorchFunctionSubclass():
        pass
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    with torch._C._ExcludeDispatchKeyGuard(keys | keys):
        pass


def test_quantisation_stubs_pass_on_and_the_rest_says_what_to_use():
    x = td.ones(2)
    assert torch.ao.quantization.QuantStub()(x) is x
    assert torch.ao.quantization.QuantWrapper(nn.Linear(2, 1))(x).shape == (1,)
    with pytest.raises(td.UnsupportedError, match=r"td\.quantize"):
        torch.ao.quantization.prepare_qat(nn.Linear(2, 1))


def test_devices_that_are_not_here_can_be_named():
    for name in ("cuda", "mps", "meta"):
        assert torch.device(name).type == name
    with pytest.raises(td.DeviceError, match="not known"):
        td.ones(2, device=torch.device("mps"))
    if not td.cuda.is_available():
        with pytest.raises(td.DeviceError, match=r"cuda\.is_available"):
            td.ones(2, device=torch.device("cuda"))


def test_datasets_loaders_and_samplers_take_types():
    T = TypeVar("T")

    class Numbers(td.data.Dataset[T]):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return index

    loader: td.data.DataLoader[int] = td.data.DataLoader(Numbers(), batch_size=2)
    assert next(iter(loader)).tolist() == [0, 1]
    assert td.data.Sampler[int].__origin__ is td.data.Sampler


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("binary_cross_entropy", (td.tensor([0.2, 0.7]), td.tensor([0.0, 1.0]))),
        ("cross_entropy", (td.tensor([[0.2, 0.7], [1.0, 3.0]]), td.tensor([0, 1]))),
        ("kl_div", (td.tensor([-0.2, -0.7]), td.tensor([0.4, 0.6]))),
        ("triplet_margin_loss", (td.ones(2, 3), td.zeros(2, 3), td.ones(2, 3))),
    ],
)
def test_losses_take_the_arguments_from_before_reduction(name, arguments):
    loss = getattr(F, name)
    assert loss(*arguments, size_average=False).item() == loss(*arguments, reduction="sum").item()
    assert loss(*arguments, size_average=True).item() == loss(*arguments).item()
    assert loss(*arguments, reduce=False).tolist() == loss(*arguments, reduction="none").tolist()


def test_losses_take_arguments_by_position_as_pytorch_does():
    x, y = td.tensor([[0.2, 0.7], [1.0, 3.0]]), td.tensor([0, 1])
    assert F.cross_entropy(x, y, None, None, 1).item() == F.cross_entropy(x[:1], y[:1]).item()
    assert F.nll_loss(x, y, None, False).item() == pytest.approx(-3.2)


def test_dropout2d_drops_what_pytorchs_does():
    td.manual_seed(0)
    rows = F.dropout2d(td.ones(64, 4, 5), 0.5).numpy()  # (N, C, L): channels are the second axis
    assert (rows.min(2) == rows.max(2)).all() and 0 < (rows[:, :, 0] == 0).mean() < 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        flat = F.dropout2d(td.ones(64, 7), 0.5).numpy()
    assert set(np.unique(flat)) == {0.0, 2.0}
    assert "use dropout" in str(caught[0].message)


def test_onnx_files_are_written_under_pytorchs_name(tmp_path):
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "linear.onnx"
    torch.onnx.export(
        nn.Linear(3, 2), (td.ones(4, 3),), path, input_names=["x"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}
    )
    assert [node.op_type for node in onnx.load(path).graph.node] == ["Gemm"]
    assert not torch.onnx.is_in_onnx_export()


def test_memory_can_be_asked_for():
    x = torch.ones(3, 4)
    assert x.untyped_storage().nbytes() == 48 == x.storage().nbytes() and len(x.storage()) == 12
    assert x[1:].untyped_storage().data_ptr() == x.untyped_storage().data_ptr() == x.data_ptr()


def test_memory_is_read_from_files(tmp_path):
    (tmp_path / "bytes").write_bytes(bytes(range(8)))
    memory = torch.UntypedStorage.from_file(str(tmp_path / "bytes"), False, 8)
    assert memory[2:4].tolist() == [2, 3] and memory[5] == 5 and len(memory[6:]) == 2
    assert torch.asarray(memory[4:8], dtype=torch.uint8).tolist() == [4, 5, 6, 7]
    assert torch.tensor([1, 256], dtype=torch.int16)[1:].untyped_storage().tolist() == [1, 0, 0, 1]


def test_safetensors_reads_and_writes(tmp_path):
    out = run("""
        import tandem.torch
        tandem.torch.install()
        import torch, safetensors, safetensors.torch as st
        model = torch.nn.Linear(3, 2)
        st.save_model(model, "a.safetensors")
        with safetensors.safe_open("a.safetensors", framework="pt") as file:
            print(sorted(file.keys()), tuple(file.get_slice("weight")[0:1].shape))
        print(torch.equal(st.load_file("a.safetensors")["weight"], model.weight))
        print(st.load_model(torch.nn.Linear(3, 2), "a.safetensors"))
        """, tmp_path)  # fmt: skip
    assert out.splitlines() == ["['bias', 'weight'] (1, 3)", "True", "(set(), [])"]


def test_gradients_of_functions_are_added_up_to_the_shape_of_the_argument():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x, factor)
            return x * factor

        @staticmethod
        def backward(ctx, g):
            x, factor = ctx.saved_tensors
            return g * factor, g * x, None, None

    x, factor = td.ones(2, 3, requires_grad=True), td.full((1, 1), 2.0, requires_grad=True)
    Scale.apply(x, factor).sum().backward()
    assert factor.grad.tolist() == [[6.0]] and x.grad.shape == (2, 3)
    with pytest.raises(td.AutogradError, match="gradient 1 is"):
        _wrong(Scale)


def _wrong(function):
    class Wrong(function):
        @staticmethod
        def backward(ctx, g):
            return g, g[:, :2]

    Wrong.apply(td.ones(2, 3), td.ones(3, requires_grad=True)).sum().backward()


def test_factors_may_come_first_as_they_did():
    x, y = torch.ones(2), torch.full((2,), 3.0)
    assert x.clone().add_(2.0, y).tolist() == [7.0, 7.0] and x.clone().sub_(2, y).tolist() == [-5.0, -5.0]
    assert x.addcmul(0.5, y, y).tolist() == [5.5, 5.5] == x.clone().addcmul_(0.5, y, y).tolist()
    assert x.addcdiv(2.0, y, y).tolist() == [3.0, 3.0] == x.addcdiv(y, y, value=2.0).tolist()
    assert x.clone().add_(y, alpha=2.0).tolist() == [7.0, 7.0] and x.clone().add_(1).tolist() == [2.0, 2.0]


def test_an_empty_out_grows():
    out = torch.empty(0)
    made = torch.add(torch.ones(2, 3), 1, out=out)
    assert made is out and out.tolist() == [[2.0] * 3] * 2
    values = torch.empty(0)
    torch.max(torch.ones(2), torch.zeros(2), out=values)
    assert values.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="but out has"):
        torch.add(torch.ones(2), 1, out=torch.empty(3))


def test_what_the_compiler_is_told():
    assert torch.compiler.allow_in_graph(abs) is abs and torch.compiler.list_backends() == ["tandem"]
    torch.compiler.reset()


def test_state_of_optimisers_of_ones_own_is_loaded_as_it_was():
    class Counting(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 1.0})

        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                self.state[p]["step"] = self.state[p].get("step", 0) + 1

    p = nn.Parameter(td.ones(2))
    first, second = Counting([p]), Counting([p])
    first.step()
    second.load_state_dict(first.state_dict())
    assert type(second.state[p]["step"]) is int


def test_hooks_can_be_counted():
    layer = nn.Linear(2, 1)
    assert len(layer._backward_hooks) == len(layer._forward_hooks) == 0
    layer.register_forward_hook(lambda *_: None)
    assert len(layer._forward_hooks) == 1


def test_streams_are_datasets():
    assert issubclass(td.data.IterableDataset, td.data.Dataset)


def test_batches_go_to_one_device():
    scatter = nn.parallel.scatter
    assert [x.tolist() for x in scatter((td.ones(2),), ["cpu"])[0]] == [[1.0, 1.0]]
    with pytest.raises(td.UnsupportedError, match="one device"):
        scatter(td.ones(2), [0, 1])


def test_shapes_of_distributions_are_sizes():
    made = td.distributions.Normal(td.zeros(2, 3), 1.0)
    assert made.batch_shape.numel() == 6 and made.event_shape.numel() == 1


def test_types_that_are_not_here_can_be_named():
    assert torch.complex32 not in (torch.complex64, torch.float16)
    with pytest.raises((TypeError, ValueError)):
        torch.ones(2, dtype=torch.complex32)
    assert not isinstance(3, torch.SymInt)
    with pytest.raises(AssertionError, match="no"):
        torch._assert(False, "no")


# -- worker processes

_LOOP = """
import tandem as td

class Squares(td.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return index * index

x = td.ones(8, 8) @ td.ones(8, 8)  # so that threads run
for batch in td.data.DataLoader(Squares(), batch_size=2, num_workers=1):
    print(batch.tolist())
"""


def test_workers_need_no_main_guard(tmp_path):
    assert run(_LOOP, tmp_path) == "[0, 1]\n[4, 9]\n"


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("work()\n", False),
        ('if __name__ == "__main__":\n    work()\n', True),
        ('if "__main__" == __name__ and True:\n    pass\nelse:\n    work()\n', True),
        ("if True:\n    work()\n", False),
        ("def (\n", True),  # cannot be told
    ],
)
def test_main_guards_are_found(tmp_path, text, guarded):
    path = tmp_path / "main.py"
    path.write_text(text)
    line = next((i for i, t in enumerate(text.splitlines(), 1) if "work()" in t), 1)
    assert main_guard._guarded(str(path), line) is guarded


def test_tensors_on_one_memory_are_sent_to_a_spawned_process(tmp_path):
    out = run("""
        import tandem as td
        import tandem.multiprocessing as mp

        def work(whole, part):
            part += 1
            print(whole.tolist(), flush=True)

        if __name__ == "__main__":
            whole = td.zeros(4).share_memory_()
            process = mp.get_context("spawn").Process(target=work, args=(whole, whole[:2]))
            process.start()
            process.join()
            print(whole.tolist())
        """, tmp_path)  # fmt: skip
    assert out == "[1.0, 1.0, 0.0, 0.0]\n" * 2
