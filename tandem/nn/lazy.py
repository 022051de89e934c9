"""Layers that learn how many features they get from their first input. From then on they are ordinary layers, in class and state.

Call a model with such layers once before its parameters go to an optimiser or into a file.
"""

from __future__ import annotations

from tandem.errors import ShapeError, ValueRangeError
from tandem.nn import conv, linear, normalization
from tandem.nn.module import Module
from tandem.nn.parameter import Buffer, Parameter, empty_tensor


class UninitializedParameter(Parameter):
    """Stands for a parameter whose shape is not known yet; it holds device, dtype and requires_grad.

    >>> td.nn.UninitializedParameter()
    <UninitializedParameter>
    """

    is_uninitialized = True

    def __new__(cls, requires_grad: bool = True, device=None, dtype=None):
        return super().__new__(cls, empty_tensor(0, device=device, dtype=dtype), requires_grad)

    def materialize(self, shape, device=None, dtype=None):
        """Gives it a shape, and memory that is not initialised; from then on it is an ordinary parameter."""
        self.data = empty_tensor(*shape, device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = Parameter

    def __repr__(self):
        return "<UninitializedParameter>"


def is_lazy(param) -> bool:
    """Whether a parameter or buffer has no shape yet.

    >>> td.nn.parameter.is_lazy(td.nn.UninitializedParameter())
    True
    """
    return getattr(param, "is_uninitialized", False)


class UninitializedBuffer(Buffer):
    """Stands for a buffer whose shape is not known yet; it holds device and dtype."""

    is_uninitialized = True

    def __new__(cls, requires_grad: bool = False, device=None, dtype=None, persistent: bool = True):
        return super().__new__(cls, empty_tensor(0, device=device, dtype=dtype), persistent=persistent)

    def materialize(self, shape, device=None, dtype=None):
        """Gives it a shape, and memory that is not initialised; from then on it is an ordinary buffer."""
        self.data = empty_tensor(*shape, device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = Buffer

    def __repr__(self):
        return "<UninitializedBuffer>"


class _Lazy:
    """Mixed into a layer: its constructor without the first argument, which the first input tells."""

    become: type  # the ordinary layer

    def __init__(self, *args, device=None, dtype=None, **kwargs):
        Module.__init__(self)
        # Made once for nothing, so that arguments that make no sense are refused here and not at the first call.
        probe = self.become(self._probe_features(*args, **kwargs), *args, device=device, dtype=dtype, **kwargs)
        self._arguments = args, kwargs
        for name, value in probe.__dict__.items():
            self.__dict__.setdefault(name, value)
        for name, p in probe._parameters.items():
            made = None if p is None else UninitializedParameter(device=device, dtype=dtype)
            self.register_parameter(name, made)
        for name, value in probe._buffers.items():
            self.register_buffer(name, value)
        setattr(self, self._feature_name, 0)

    @staticmethod
    def _probe_features(*args, **kwargs) -> int:
        return 1

    def has_uninitialized_params(self) -> bool:
        """Whether it still waits for its first input."""
        return "_arguments" in self.__dict__

    def __call__(self, *args, **kwargs):
        self.initialize_parameters(*args)
        return self(*args, **kwargs)  # by the class that it has become

    def initialize_parameters(self, input, *rest):
        """Makes the parameters that fit this input, and becomes the ordinary layer."""
        axis = self._feature_axis(input)
        if input.ndim <= axis or axis < -input.ndim:
            raise ShapeError(type(self).__name__, f"input is {tuple(input.shape)}; it has no axis {axis} of features")
        self._settle(input.shape[axis])

    def _settle(self, features: int):
        args, kwargs = self._arguments
        held = next((t for t in (*self._parameters.values(), *self._buffers.values()) if t is not None), None)
        made = self.become(int(features), *args, **kwargs)
        if held is not None:
            made.to(device=held.device, dtype=held.dtype)
        del self._arguments
        setattr(self, self._feature_name, int(features))
        for name, p in made._parameters.items():
            if p is not None:
                p.requires_grad_(self._parameters[name].requires_grad)
                self._parameters[name] = p
        for name, value in made._buffers.items():
            self._buffers[name] = value
        self.__class__ = self.become

    def _load_from_state_dict(self, state_dict, prefix, *args):
        features = self._features_of(state_dict, prefix)
        if self.has_uninitialized_params() and features is not None:
            self._settle(features)
            self._load_from_state_dict(state_dict, prefix, *args)
        else:
            super()._load_from_state_dict(state_dict, prefix, *args)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        raise ValueRangeError(
            type(self).__name__,
            f"{prefix.rstrip('.') or 'the module'} has no parameters yet: it waits for its first input",
            fix="call the model once before you save it",
        )

    def extra_repr(self) -> str:
        args, kwargs = self._arguments
        return ", ".join([*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())])


class LazyLinear(_Lazy, linear.Linear):
    """A Linear whose in_features is the last size of its first input.

    >>> layer = td.nn.LazyLinear(3)
    >>> layer(td.ones(2, 5)).shape, layer
    ((2, 3), Linear(in_features=5, out_features=3, bias=True))
    """

    become = linear.Linear
    _feature_name = "in_features"

    def __init__(self, out_features: int, bias: bool = True, device=None, dtype=None):
        super().__init__(out_features, bias, device=device, dtype=dtype)

    @staticmethod
    def _feature_axis(input) -> int:
        return -1

    @staticmethod
    def _features_of(state, prefix):
        weight = state.get(prefix + "weight")
        return None if weight is None else weight.shape[1]


class _LazyConv(_Lazy):
    _feature_name = "in_channels"

    @staticmethod
    def _probe_features(*args, groups: int = 1, **kwargs) -> int:
        return max(groups, 1)

    def _feature_axis(self, input) -> int:
        return 0 if input.ndim == self.axes + 1 else 1

    def _features_of(self, state, prefix):
        weight = state.get(prefix + "weight")
        if weight is None:
            return None
        return weight.shape[0] if self.transposed else weight.shape[1] * self.groups


class _LazyForward(_LazyConv):
    def __init__(self, out_channels: int, kernel_size, stride=1, padding=0, dilation=1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", device=None, dtype=None):  # fmt: skip
        super().__init__(out_channels, kernel_size, stride=stride, padding=padding, dilation=dilation, groups=groups,
                         bias=bias, padding_mode=padding_mode, device=device, dtype=dtype)  # fmt: skip


class _LazyTransposed(_LazyConv):
    def __init__(self, out_channels: int, kernel_size, stride=1, padding=0, output_padding=0, groups: int = 1,
                 bias: bool = True, dilation=1, padding_mode: str = "zeros", device=None, dtype=None):  # fmt: skip
        super().__init__(out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding,
                         groups=groups, bias=bias, dilation=dilation, padding_mode=padding_mode, device=device,
                         dtype=dtype)  # fmt: skip


class LazyConv1d(_LazyForward, conv.Conv1d):
    """A Conv1d whose in_channels are those of its first input."""

    become = conv.Conv1d


class LazyConv2d(_LazyForward, conv.Conv2d):
    """A Conv2d whose in_channels are those of its first input.

    >>> layer = td.nn.LazyConv2d(8, 3)
    >>> layer(td.ones(1, 3, 5, 5)).shape, layer
    ((1, 8, 3, 3), Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1)))
    """

    become = conv.Conv2d


class LazyConv3d(_LazyForward, conv.Conv3d):
    """A Conv3d whose in_channels are those of its first input."""

    become = conv.Conv3d


class LazyConvTranspose1d(_LazyTransposed, conv.ConvTranspose1d):
    """A ConvTranspose1d whose in_channels are those of its first input."""

    become = conv.ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, conv.ConvTranspose2d):
    """A ConvTranspose2d whose in_channels are those of its first input."""

    become = conv.ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, conv.ConvTranspose3d):
    """A ConvTranspose3d whose in_channels are those of its first input."""

    become = conv.ConvTranspose3d


class _LazyNorm(_Lazy):
    _feature_name = "num_features"

    def __init__(self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
                 device=None, dtype=None):  # fmt: skip
        super().__init__(eps=eps, momentum=momentum, affine=affine, track_running_stats=track_running_stats,
                         device=device, dtype=dtype)  # fmt: skip

    def _feature_axis(self, input) -> int:
        return 1

    def _features_of(self, state, prefix):
        found = next((state[prefix + n] for n in ("weight", "running_mean") if prefix + n in state), None)
        return None if found is None else found.shape[0]


class LazyBatchNorm1d(_LazyNorm, normalization.BatchNorm1d):
    """A BatchNorm1d with as many features as its first input has.

    >>> layer = td.nn.LazyBatchNorm1d()
    >>> layer(td.ones(2, 5)).shape, layer.num_features
    ((2, 5), 5)
    """

    become = normalization.BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, normalization.BatchNorm2d):
    """A BatchNorm2d with as many features as its first input has."""

    become = normalization.BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, normalization.BatchNorm3d):
    """A BatchNorm3d with as many features as its first input has."""

    become = normalization.BatchNorm3d


class _LazyInstanceNorm(_LazyNorm):
    def _feature_axis(self, input) -> int:
        return 0 if input.ndim == self.axes + 1 else 1


class LazyInstanceNorm1d(_LazyInstanceNorm, normalization.InstanceNorm1d):
    """An InstanceNorm1d with as many features as its first input has."""

    become = normalization.InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, normalization.InstanceNorm2d):
    """An InstanceNorm2d with as many features as its first input has."""

    become = normalization.InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, normalization.InstanceNorm3d):
    """An InstanceNorm3d with as many features as its first input has."""

    become = normalization.InstanceNorm3d
