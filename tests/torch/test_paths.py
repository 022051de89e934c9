"""Paths that packages import."""

from tests.torch.scripts import run


def test_paths_that_packages_import(tmp_path):
    out = run("""
        import tandem.torch
        tandem.torch.install()
        import torch._custom_ops, torch._dynamo.config, torch.backends.cudnn as cudnn
        from torch._dynamo.utils import is_compile_supported
        from torch.ao.quantization import DeQuantStub, QuantStub
        from torch.fx import Graph, Node, Proxy, wrap
        from torch.hub import HASH_REGEX, _get_torch_home
        from torch.jit.annotations import BroadcastingList2
        from torch.nn.modules.module import _IncompatibleKeys
        from torch.onnx import symbolic_opset11
        from torch.onnx.symbolic_helper import parse_args
        from torch.types import Device, _device, _size
        from torch.nn.modules.batchnorm import LazyBatchNorm1d
        from torch.nn.modules.conv import LazyConv2d
        from torch.nn.parameter import UninitializedParameter, is_lazy
        from torch.utils.data._utils.collate import default_collate
        from torch.utils.model_zoo import tqdm
        assert is_lazy(UninitializedParameter()) and is_lazy(LazyConv2d(2, 3).weight) and LazyBatchNorm1d
        print(cudnn.is_available() in (True, False), list(tqdm(range(2))), is_compile_supported("cpu"))
        """, tmp_path)  # fmt: skip
    assert out == "True [0, 1] True\n"


def test_names_that_packages_read_from_torch(tmp_path):
    out = run("""
        import tandem.torch
        tandem.torch.install()
        import torch
        import torch.distributed as dist
        import torch.distributed.nn as dist_nn
        import torch.functional
        import torch.distributed.nn.functional as collectives
        from torch.distributions.transforms import _InverseTransform
        from torch.distributions.utils import _sum_rightmost
        from torch.serialization import DEFAULT_PROTOCOL, MAP_LOCATION
        families = [f for f in vars(torch.distributions).values() if isinstance(f, type) and f.__doc__ is None]
        assert torch.functional.einsum is torch.einsum
        print(torch.__name__, dist.Backend("NCCL") == dist.Backend.NCCL, dist_nn.all_reduce is collectives.all_reduce)
        print(_sum_rightmost(torch.ones(2, 3, 4), 2).tolist(), families)
        print(isinstance(torch.distributions.ExpTransform().inv, _InverseTransform), torch.autograd.profiler.profile)
        """, tmp_path)  # fmt: skip
    assert out.splitlines()[:2] == ["torch True True", "[12.0, 12.0] []"]
    assert out.splitlines()[2].startswith("True ")
