"""PyTorch's paths to layers: nn.modules.batchnorm._BatchNorm, nn.modules.utils._pair and kin."""

from __future__ import annotations

import importlib

from tandem.aliases import contents, path
from tandem.nn import *  # noqa: F403
from tandem.nn import (
    activation,
    adaptive,
    attention,
    containers,
    conv,
    dropout,
    embedding,
    lazy,
    linear,
    loss,
    normalization,
    pooling,
    rnn,
    shape,
    transformer,
)
from tandem.nn import module as _module
from tandem.nn.state import LoadResult


def _path(name: str, *modules, **more):
    globals()[name] = path(f"tandem.nn.modules.{name}", contents(*modules) | more)


def _lazy(kind: str) -> dict:
    return {name: cls for name, cls in vars(lazy).items() if name.startswith("Lazy" + kind)}


_path("activation", activation, attention)
_path("adaptive", adaptive)
_path("batchnorm", normalization, **_lazy("BatchNorm"), _NormBase=normalization._ByStatistics)
_path("container", containers)
_path("conv", conv, **_lazy("Conv"), _ConvNd=conv._Convolution, _ConvTransposeNd=conv._Transposed)
_path("distance", loss)
_path("dropout", dropout, _DropoutNd=dropout._Dropout)
_path("flatten", shape)
_path("fold", shape)
_path("instancenorm", normalization, **_lazy("InstanceNorm"))
_path("lazy", lazy)
_path("linear", linear)
_path("loss", loss)
_path("module", _module, _IncompatibleKeys=LoadResult)
_path("normalization", normalization)
_path("padding", shape)
_path("pixelshuffle", shape)
_path("pooling", pooling)
_path("rnn", rnn)
_path("sparse", embedding)
_path("transformer", transformer)
_path("upsampling", shape)
utils = importlib.import_module("tandem.nn.modules.utils")  # not nn.utils, which came with the others

__all__ = sorted(name for name in dir() if not name.startswith("_") and name not in ("annotations", "contents", "path"))
