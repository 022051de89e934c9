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
        from torch.utils.model_zoo import tqdm
        print(cudnn.is_available() in (True, False), list(tqdm(range(2))), is_compile_supported("cpu"))
        """, tmp_path)  # fmt: skip
    assert out == "True [0, 1] True\n"
