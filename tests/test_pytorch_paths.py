"""Modules and names of PyTorch programs: what their first lines import and set is here."""

import numpy as np
import pytest

import tandem as td


def test_types():
    assert (td.half, td.float, td.double) == (td.float16, td.float32, td.float64)
    assert (td.short, td.int, td.long) == (td.int16, td.int32, td.int64)
    assert isinstance(td.float32, td.dtype)
    assert td.ones(2, 3).shape == td.Size([2, 3])
    assert td.Size([2, 3]).numel() == 6


def test_devices():
    device = td.device("cuda" if td.cuda.is_available() else "cpu")
    x = td.zeros(2, device=device)
    assert isinstance(x.device, td.device)
    assert x.device == device
    assert x.to(device) is x
    assert td.device("cpu", 0) == "cpu"
    assert td.device(device) == device
    assert {td.device("cpu"): 1}[x.device] == 1 or td.cuda.is_available()
    for bad in ("gpu", "cpu:1", "cpu:x", None, True, 3.5):
        with pytest.raises(td.DeviceError):
            td.device(bad)
    td.set_default_device("cpu")
    assert td.get_default_device() == "cpu"


def test_data_of_a_tensor_is_written():
    p = td.nn.Parameter(td.ones(3))
    p.data -= 0.5
    assert p.tolist() == [0.5] * 3
    p.data = td.arange(3.0)
    assert p.tolist() == [0, 1, 2]
    assert p.requires_grad
    p.data = td.zeros(2, dtype=td.float64)  # another shape and dtype too, as in PyTorch
    assert ((2,), td.float64, True) == (tuple(p.shape), p.dtype, p.requires_grad)
    with pytest.raises(TypeError):
        p.data = 3


def test_paths():
    import tandem.utils.data
    from tandem.amp import GradScaler, autocast
    from tandem.utils.checkpoint import checkpoint, checkpoint_sequential
    from tandem.utils.data import DataLoader

    assert DataLoader is td.data.DataLoader
    assert tandem.utils.data is td.data
    assert (autocast, GradScaler) == (td.autocast, td.GradScaler)
    model = td.nn.Sequential(td.nn.Linear(4, 4), td.nn.Tanh(), td.nn.Linear(4, 2))
    x = td.randn(3, 4)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    for run in (lambda: checkpoint_sequential(model, 2, x), lambda: checkpoint(model, x, use_reentrant=False)):
        model.zero_grad()
        run().sum().backward()
        for p, e in zip(model.parameters(), expected, strict=True):
            np.testing.assert_allclose(p.grad.numpy(), e.numpy(), rtol=1e-6)


def test_positions_of_extremes_pytorchs_way():
    x = td.tensor([[3.0, 1.0], [2.0, 5.0]], requires_grad=True)
    for pair in (td.max(x, 1), td.max(x, dim=1), td.max(x, dim=-1, keepdim=False), x.max(1)):
        values, indices = pair
        assert (values.tolist(), indices.tolist()) == ([3, 5], [0, 1])
    assert td.min(x, 0, True).indices.shape == (1, 2)
    assert td.max(x, axis=1).tolist() == [3, 5]
    assert td.max(x).item() == 5
    assert td.max(x, x * 2).tolist() == [[6, 2], [4, 10]]
    assert td.sort(x, dim=1, descending=True).indices.tolist() == [[0, 1], [1, 0]]
    assert td.sort(x, axis=1).tolist() == [[1, 3], [2, 5]]
    assert x.detach().flip(0, 1).tolist() == [[5, 2], [1, 3]]


def test_jacobians_at_a_point():
    f = td.autograd.functional
    a, b = td.tensor([1.0, 2.0]), td.tensor([3.0, 4.0])
    assert f.jacobian(lambda x: x * x, a).tolist() == [[2, 0], [0, 4]]
    by_a, by_b = f.jacobian(lambda x, y: x * y, (a, b), strategy="forward-mode")
    assert (by_a.tolist(), by_b.tolist()) == ([[3, 0], [0, 4]], [[1, 0], [0, 2]])
    first, second = f.jacobian(lambda x: (x, x.sum()), a)
    assert (first.tolist(), second.tolist()) == ([[1, 0], [0, 1]], [1, 1])
    assert f.hessian(lambda x: (x**3).sum(), a).tolist() == [[6, 0], [0, 12]]
    (_, mixed), _ = f.hessian(lambda x, y: (x * x * y).sum(), (a, b))
    assert mixed.tolist() == [[2, 0], [0, 4]]


def test_options_that_choose_nothing(tmp_path):
    f = td.compile(lambda x: x + 1, mode="max-autotune", fullgraph=True, dynamic=True, backend="inductor")
    assert f(td.ones(2)).tolist() == [2, 2]
    td.save({"a": td.ones(2)}, tmp_path / "a.safetensors")
    assert td.load(tmp_path / "a.safetensors", "cpu", weights_only=True)["a"].tolist() == [1, 1]
    td.cuda.manual_seed_all(0)
    td.cuda.empty_cache()
    from tandem.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded, record_function("mine"):
        td.ones(8, 8) @ td.ones(8, 8)
    assert "matmul" in recorded.key_averages().table(sort_by="cpu_time_total", row_limit=10)
    with td.autograd.set_detect_anomaly(True):
        pass
    x = td.zeros(1, requires_grad=True)
    assert (x / x).isnan().item()


def test_paths_of_files():
    """What programs import from PyTorch's files rather than its packages."""
    from tandem.autograd.profiler import record_function
    from tandem.distributions.kl import kl_divergence
    from tandem.distributions.normal import Normal
    from tandem.distributions.utils import broadcast_all, probs_to_logits, vec_to_tril_matrix
    from tandem.nn.modules.batchnorm import _BatchNorm
    from tandem.nn.modules.conv import _ConvNd
    from tandem.nn.modules.utils import _pair, consume_prefix_in_state_dict_if_present
    from tandem.optim.adamw import AdamW
    from tandem.optim.lr_scheduler import _LRScheduler
    from tandem.utils.data.dataloader import default_collate
    from tandem.utils.data.distributed import DistributedSampler
    from tandem.utils.data.sampler import Sampler
    from tandem.utils.hooks import RemovableHandle

    assert (Normal, kl_divergence) == (td.distributions.Normal, td.distributions.kl_divergence)
    assert isinstance(td.nn.BatchNorm2d(2), _BatchNorm) and isinstance(td.nn.ConvTranspose1d(1, 1, 1), _ConvNd)
    assert isinstance(td.nn.Linear(1, 1), td.nn.modules.Module) and td.nn.modules.loss._Loss
    assert (_pair(3), _pair([1, 2])) == ((3, 3), (1, 2))
    assert AdamW is td.optim.AdamW and issubclass(td.optim.lr_scheduler.StepLR, _LRScheduler)
    assert Sampler is td.data.Sampler and DistributedSampler is td.data.DistributedSampler
    assert default_collate([1, 2]).tolist() == [1, 2]
    assert isinstance(td.nn.Linear(1, 1).register_forward_hook(print), RemovableHandle)
    with record_function("x"):
        state = {"module.a": 1, "b": 2}
    consume_prefix_in_state_dict_if_present(state, "module.")
    assert state == {"a": 1, "b": 2}
    one, other = broadcast_all(1, td.zeros(2, dtype=td.float64))
    assert one.shape == other.shape and one.dtype is td.float64
    assert probs_to_logits(td.tensor([0.5]), is_binary=True).item() == 0
    assert vec_to_tril_matrix(td.arange(1.0, 4.0)).tolist() == [[1, 0], [2, 3]]
    assert vec_to_tril_matrix(td.arange(1.0, 4.0), -1).tolist() == [[0, 0, 0], [1, 0, 0], [2, 3, 0]]


def test_what_programs_ask_before_they_start():
    assert not (td.distributed.is_available() and td.distributed.is_initialized())
    assert not td.jit.is_scripting() and not td.compiler.is_compiling()
    seen = []
    td.compile(lambda x: seen.append(td.compiler.is_compiling()) or x + 1)(td.ones(1))
    assert seen == [True]

    @td.jit.ignore(drop=True)
    @td.jit.script
    def double(x: td.Tensor) -> td.Tensor:
        return 2 * x

    assert double(td.ones(1)).item() == 2
    assert td.version.cuda is None or td.cuda.is_available()
    td.backends.cuda.enable_flash_sdp(False)
    assert not td.backends.cuda.flash_sdp_enabled()
    td.backends.cuda.enable_flash_sdp(True)
    with td.backends.cudnn.flags(enabled=True, benchmark=False):
        assert not td.backends.cudnn.benchmark
    assert td.backends.cudnn.benchmark and td.backends.mkldnn.is_available()
    td.multiprocessing.set_sharing_strategy("file_system")
    with pytest.raises(ValueError, match="file_system"):
        td.multiprocessing.set_sharing_strategy("other")
    assert issubclass(td.cuda.OutOfMemoryError, MemoryError)
    capsule = td.utils.dlpack.to_dlpack(td.ones(2))
    assert "dltensor" in repr(capsule)


def test_parameters_that_pytorch_has():
    assert td.float32.is_floating_point and td.float32.is_signed
    assert not td.complex64.is_floating_point and not td.uint8.is_signed
    for layer in (td.nn.BatchNorm2d(4, bias=False), td.nn.GroupNorm(2, 4, bias=False)):
        assert layer.bias is None and layer.weight is not None
        assert layer(td.randn(2, 4, 3, 3)).shape == (2, 4, 3, 3)
    assert td.nn.InstanceNorm1d(4, affine=True, bias=False).bias is None
    value, pull, other = td.vjp(lambda x: (x * x, "other"), td.tensor(3.0), has_aux=True)
    assert (value.item(), pull(td.tensor(1.0))[0].item(), other) == (9, 6, "other")
    x = td.ones(2, 3)
    td.testing.assert_close(x.T.contiguous().T, x)
    with pytest.raises(AssertionError, match="strides"):
        td.testing.assert_close(x.T.contiguous().T, x, check_stride=True)
    with pytest.raises(AssertionError, match="Parameter"):
        td.testing.assert_close(td.nn.Parameter(x), x, allow_subclasses=False)
    shared = td.nn.ReLU()
    model = td.nn.Sequential(shared, shared)
    assert len(list(model.modules())) == 2 and len(list(model.modules(remove_duplicate=False))) == 3
    model.set_submodule("1", td.nn.Tanh(), strict=True)
    with pytest.raises(AttributeError):
        model.set_submodule("7", td.nn.Tanh(), strict=True)
