"""Normalisation layers."""

from __future__ import annotations

from tandem import _runtime, dtypes, hooks
from tandem.nn import functional as F
from tandem.nn import init
from tandem.nn.linear import empty_parameter
from tandem.nn.module import Module
from tandem.nn.parameter import empty_tensor
from tandem.ops.normalization import batch_norm_counted
from tandem.ops.sync_batch import sync_batch_norm


class _ByStatistics(Module):
    """What batch and instance normalisation share: weights and running statistics for each channel."""

    def __init__(self, num_features, eps, momentum, affine, track_running_stats, device, dtype, bias: bool = True):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, empty_parameter(num_features, device=device, dtype=dtype) if wanted else None)
        for name in ("running_mean", "running_var"):
            self.register_buffer(
                name, empty_tensor(num_features, device=device, dtype=dtype) if track_running_stats else None
            )
        self.register_buffer(
            "num_batches_tracked", empty_tensor(device=device, dtype=dtypes.int64) if track_running_stats else None
        )
        self.reset_parameters()

    def reset_running_stats(self):
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1.0)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict, prefix, *args):
        # Files from before PyTorch 0.4.1 do not count batches.
        key = prefix + "num_batches_tracked"
        if self.num_batches_tracked is not None and key not in state_dict and prefix + "running_mean" in state_dict:
            state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(state_dict, prefix, *args)


class _BatchNorm(_ByStatistics):
    ndims: tuple[int, ...] = ()

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device=None, dtype=None, *, bias: bool = True):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input):
        if input.ndim not in self.ndims:
            raise ValueError(
                f"{type(self).__name__} takes {' or '.join(map(str, self.ndims))} axes; input is {input.shape}"
            )
        if not self.training and self.running_mean is not None:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        batches, momentum = self.num_batches_tracked, self.momentum
        if self.training and batches is not None and momentum is not None:
            return batch_norm_counted(
                input, self.running_mean, self.running_var, batches, self.weight, self.bias, momentum, self.eps
            )
        return F.batch_norm(input, *self._tracked(), self.weight, self.bias, True, self._count(), self.eps)

    def _tracked(self):
        """Statistics to update: none while evaluating."""
        return (self.running_mean, self.running_var) if self.training else (None, None)

    def _count(self) -> float:
        """Counts the batch; the weight of its statistics. Without momentum that makes a plain average."""
        if not self.training or self.num_batches_tracked is None:
            return 0.0
        self.num_batches_tracked.add_(1)
        return 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum


class BatchNorm1d(_BatchNorm):
    """Batch normalisation: mean 0 and variance 1 in each channel over the batch, then weight and bias.

    input: (N, C) or (N, C, L) -> same shape. Running statistics replace the batch's own while evaluating.

    >>> td.nn.BatchNorm1d(3).eval()(td.ones(2, 3)).shape
    (2, 3)
    """

    ndims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W). Running statistics replace the batch's own while evaluating."""

    ndims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W). Running statistics replace the batch's own while evaluating."""

    ndims = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of (N, C, *) by the statistics of the batches of all ranks, while training.

    process_group: the ranks; all unless given. All of them must run the layer; their batches may differ in size, and be empty.
    Without a process group, and for sharded tensors, whose batch is that of all ranks anyway, it is BatchNorm.
    """

    ndims = tuple(range(2, 9))

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, process_group=None, device=None, dtype=None, *,
                 bias: bool = True):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def forward(self, input):
        ranks = hooks.ranks_of(self.process_group) if self.training else None
        if ranks is None or input.ndim < 2 or _is_sharded(input):
            return super().forward(input)
        token, size = ranks
        count = self._count()
        return sync_batch_norm(input, *self._tracked(), self.weight, self.bias, count, self.eps, token, size)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group=None) -> Module:
        """The module with every batch normalisation in it replaced by a SyncBatchNorm with the same parameters and state."""
        made = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            made = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
                bias=module.bias is not None,
            )
            made._parameters.update(module._parameters)
            made._buffers.update(module._buffers)
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


def _is_sharded(x) -> bool:
    return isinstance(x, _runtime.Tensor) and _runtime.parts_of(x) is not None


class _InstanceNorm(_ByStatistics):
    axes = 0

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
                 track_running_stats: bool = False, device=None, dtype=None, *, bias: bool = True):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input):
        if input.ndim not in (self.axes + 1, self.axes + 2):
            raise ValueError(
                f"{type(self).__name__} takes {self.axes + 2} axes, or {self.axes + 1} without a batch; input is {input.shape}"
            )
        batch = input if input.ndim == self.axes + 2 else input.unsqueeze(0)
        own = self.training or not self.track_running_stats
        out = F.instance_norm(
            batch, self.running_mean, self.running_var, self.weight, self.bias, own, self.momentum or 0.0, self.eps
        )
        return out if batch is input else out.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Mean 0 and variance 1 in each channel of each sample. input: (N, C, L) or (C, L)"""

    axes = 1


class InstanceNorm2d(_InstanceNorm):
    """Mean 0 and variance 1 in each channel of each sample. input: (N, C, H, W) or (C, H, W)"""

    axes = 2


class InstanceNorm3d(_InstanceNorm):
    """Mean 0 and variance 1 in each channel of each sample. input: (N, C, D, H, W) or (C, D, H, W)"""

    axes = 3


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axes, then weight and bias.

    input: (*, *normalized_shape) -> same shape

    >>> td.nn.LayerNorm(2)(td.tensor([[1.0, 3.0]]))
    tensor([[-1.0000,  1.0000]], grad_fn=<layer_norm backward>)
    """

    def __init__(
        self,
        normalized_shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            self.register_parameter(
                name, empty_parameter(*self.normalized_shape, device=device, dtype=dtype) if wanted else None
            )
        self.reset_parameters()

    def reset_parameters(self):
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """x over the root of its mean square along the last axes, then times weight. eps: the dtype's own if None.

    input: (*, *normalized_shape) -> same shape
    """

    def __init__(
        self, normalized_shape, eps: float | None = None, elementwise_affine: bool = True, device=None, dtype=None
    ):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        weight = empty_parameter(*self.normalized_shape, device=device, dtype=dtype) if elementwise_affine else None
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self):
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input):
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Mean 0 and variance 1 in each group of channels of each sample, then weight and bias for each channel.

    input: (N, num_channels, *) -> same shape
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device=None, dtype=None, *,
        bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"{num_channels} channels do not divide into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, empty_parameter(num_channels, device=device, dtype=dtype) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.affine:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LocalResponseNorm(Module):
    """x over (k + alpha * mean of squares over `size` neighbouring channels) ** beta, as AlexNet has it."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
