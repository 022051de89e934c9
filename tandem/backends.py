"""Settings of libraries under PyTorch's paths, for programs that set them. Only TensorFloat-32 is a choice here:

td.backends.cuda.matmul.allow_tf32 = True   # the same as td.cuda.set_allow_tf32(True)
td.backends.cudnn.benchmark = True          # accepted: algorithms are always chosen by trying, once per size
"""

from __future__ import annotations

import contextlib
import functools
import sys

from tandem import _runtime
from tandem import cuda as devices
from tandem.errors import ValueRangeError
from tandem.switches import WINOGRAD


class _TF32:
    """TensorFloat-32 is allowed for products and convolutions together."""

    @property
    def allow_tf32(self) -> bool:
        return devices.allow_tf32()

    @allow_tf32.setter
    def allow_tf32(self, allow: bool):
        devices.set_allow_tf32(bool(allow))


class _Cudnn(_TF32):
    def __init__(self):
        # What PyTorch lets one choose and is settled here: algorithms are tried once per size, among deterministic ones only.
        self.enabled, self.benchmark, self.deterministic = True, True, True

    @staticmethod
    def is_available() -> bool:
        return devices.is_available()

    @contextlib.contextmanager
    def flags(self, enabled=None, benchmark=None, benchmark_limit=None, deterministic=None, allow_tf32=None, **others):
        """Settings for a scope."""
        given = {"enabled": enabled, "benchmark": benchmark, "deterministic": deterministic, "allow_tf32": allow_tf32}
        given = {k: v for k, v in given.items() if v is not None}
        before = {k: getattr(self, k) for k in given}
        for k, v in given.items():
            setattr(self, k, v)
        try:
            yield
        finally:
            for k, v in before.items():
                setattr(self, k, v)


class _Cuda:
    """enable_flash_sdp and kin are PyTorch's switches between ways of computing attention; there is one here, and what is set is
    only remembered."""

    def __init__(self):
        self.matmul = _TF32()
        self._ways = dict.fromkeys(("flash", "mem_efficient", "math", "cudnn"), True)
        for way in self._ways:
            setattr(self, f"enable_{way}_sdp", functools.partial(self._ways.__setitem__, way))
            setattr(self, f"{way}_sdp_enabled", functools.partial(self._ways.__getitem__, way))

    @staticmethod
    def is_built() -> bool:
        return devices.is_available()


class _Present:
    """A library that routines here are computed with."""

    enabled = True

    @staticmethod
    def is_available() -> bool:
        return True


class _Absent:
    """A backend that is not here."""

    @staticmethod
    def is_available() -> bool:
        return False

    @staticmethod
    def is_built() -> bool:
        return False


class _Cpu:
    @staticmethod
    def get_cpu_capability() -> str:
        """The widest vectors that this machine has, as PyTorch says it."""
        isa = _runtime.library_isa()
        return "AVX512" if "512" in isa else "AVX2" if "avx2" in isa else "DEFAULT"


cpu = _Cpu()
cuda, cudnn, mps, mkl, mkldnn, openmp = _Cuda(), _Cudnn(), _Absent(), _Absent(), _Present(), _Absent()
__path__ = []  # so that `import torch.backends.cudnn` is looked up
for _name in ("cpu", "cuda", "cudnn", "mps", "mkl", "mkldnn", "openmp"):  # import tandem.backends.cudnn as cudnn
    sys.modules[f"{__name__}.{_name}"] = globals()[_name]


def set_float32_matmul_precision(precision: str) -> None:
    """ "highest": float32 products and convolutions as exact as direct sums in float32. "high" or "medium": TensorFloat-32 is
    allowed on devices that have it, and on the CPU convolutions of 3 x 3 in blocks that are quicker and off by a few times as much.
    """
    if precision not in ("highest", "high", "medium"):
        raise ValueRangeError(
            "set_float32_matmul_precision", f"precision is {precision!r}; it must be 'highest', 'high' or 'medium'"
        )
    cuda.matmul.allow_tf32 = precision != "highest"
    if WINOGRAD:
        WINOGRAD.set(1 if precision == "highest" else 2)


def get_float32_matmul_precision() -> str:
    return "high" if cuda.matmul.allow_tf32 else "highest"
