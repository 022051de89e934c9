"""Layers folded into one."""

import numpy as np
import pytest

import tandem as td
from tandem import nn


def test_fused_layers():
    bn = nn.BatchNorm2d(4)
    conv = nn.Conv2d(2, 4, 3, bias=False)
    bn(conv(td.randn(8, 2, 6, 6)))
    with pytest.raises(ValueError, match="eval"):
        nn.utils.fuse_conv_bn_eval(conv, bn)
    x = td.randn(1, 2, 6, 6)
    fused = nn.utils.fuse_conv_bn_eval(conv.eval(), bn.eval())
    np.testing.assert_allclose(fused(x).detach().numpy(), bn(conv(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
