"""What Tensor does in Python: text, conversion, copying, gradients, views. Fast paths live in src/bindings."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd.backward import _tensor_backward
from tandem.autograd.modes import no_grad
from tandem.devices import as_device
from tandem.errors import AutogradError, DTypeError
from tandem.repr import format_tensor

Tensor = _runtime.Tensor


def to(self, *args, dtype=None, device=None, copy=False):
    """This tensor with another dtype or on another device; itself if nothing changes.

    >>> td.tensor([1, 2]).to(td.float32)
    tensor([1., 2.])
    """
    for a in args:
        if isinstance(a, Tensor):
            dtype = a.dtype
        elif isinstance(a, dtypes.DType) or a in (float, int, bool):
            dtype = a
        else:
            device = a
    if device is not None:
        as_device(device)
    if dtype is None:
        return F.clone(self) if copy else self
    return F.astype(self, dtypes.as_dtype(dtype), copy=copy)


def requires_grad_(self, requires_grad: bool = True):
    """Sets requires_grad in place and returns the tensor."""
    self.requires_grad = requires_grad
    return self


def detach(self):
    """The same memory without history: the result does not require a gradient."""
    return _runtime.detach(self)


def detach_(self):
    """Forgets history in place: the tensor becomes a leaf."""
    _runtime.drop_history(self)
    return self


class HookHandle:
    """What register_hook returns; remove() takes the hook away."""

    _next = 0

    def __init__(self, hooks: dict, fn):
        HookHandle._next += 1
        self._hooks, self._id = hooks, HookHandle._next
        hooks[self._id] = fn

    def remove(self):
        self._hooks.pop(self._id, None)


def register_hook(self, fn):
    """fn(grad) runs when this tensor's gradient is known; what it returns, if anything, replaces the gradient."""
    if not self.requires_grad:
        raise AutogradError("register_hook", "the tensor does not require grad, so no gradient will come by")
    return HookHandle(_runtime.hooks_of(self), fn)


def retain_grad(self):
    """Keeps the gradient of a tensor that is not a leaf in .grad after backward."""
    if not self.requires_grad:
        raise AutogradError("retain_grad", "the tensor does not require grad")
    if self.is_leaf or _runtime.retain_grad_flag(self):
        return
    import weakref

    owner = weakref.ref(self)

    def keep(g):
        t = owner()
        if t is not None:
            t.grad = g.detach() if t.grad is None else t.grad + g.detach()

    _runtime.set_retain_grad_flag(self)
    self.register_hook(keep)


def numpy(self, *, force: bool = False):
    """A NumPy array on the same memory."""
    if self.requires_grad and not force:
        raise AutogradError("numpy", "the tensor requires grad, and NumPy would not record what is done to it", fix="use x.detach().numpy()")
    return _runtime.to_numpy(self.detach() if self.requires_grad else self)


def __deepcopy__(self, memo):
    if not self.is_leaf:
        raise AutogradError("deepcopy", "only leaves can be deep-copied; this tensor was computed by a recorded operator",
                            fix="copy x.detach()")
    with no_grad():
        made = F.clone(self)
    if type(self) is not Tensor:
        made = _runtime.make_subclass(type(self), made)
    made.requires_grad = self.requires_grad
    memo[id(self)] = made
    if self.grad is not None:
        made.grad = __deepcopy__(self.grad.detach(), memo)
    for name, value in vars(self).items():
        import copy

        setattr(made, name, copy.deepcopy(value, memo))
    return made


def _rebuild(cls, data, dtype, shape, requires_grad, attributes):
    made = _runtime.from_bytes(data, dtypes.by_name(dtype), shape)
    if cls is not Tensor:
        made = _runtime.make_subclass(cls, made)
    made.requires_grad = requires_grad
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def __reduce_ex__(self, protocol):
    if not self.is_leaf:
        raise AutogradError("pickle", "only leaves can be pickled; this tensor was computed by a recorded operator", fix="pickle x.detach()")
    return _rebuild, (type(self), _runtime.to_bytes(self), self.dtype.name, self.shape, self.requires_grad, dict(vars(self)))


def __format__(self, spec):
    return format(self.item(), spec) if self.ndim == 0 else object.__format__(self, spec)


def view_as_self(self):
    """A view of all of it: another tensor on the same memory, with history."""
    return F.reshape(self, self.shape)


def view(self, *shape):
    """The same memory under another shape or dtype; an error where only a copy could do it."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    result = F.reshape(self, shape)
    if result.data_ptr() != self.data_ptr() and self.size:
        raise DTypeError("view", f"a tensor of shape {self.shape} and strides {self.strides} cannot be viewed as {shape} without a copy",
                         fix="use reshape")
    return result


# -- in-place writes through views


# Note [Views and in-place]
# A write through a view changes its base. On the tape the base then is: what it was, with the view's positions replaced by the
# view's new value. Gradients go both ways accordingly. Positions are found once by laying out the base's flat numbers in its own
# geometry and looking at them through the view; that costs memory for an index, but serves every view there is.


def _positions(base, view_tensor):
    """Flat numbers of the base's elements that the view shows, in the view's shape."""
    with no_grad():
        numbers = _runtime.empty((_extent(base),), dtypes.int64)
        flat = F.arange(0, base.size, dtype=dtypes.int64)
        F.copy_(_runtime.alias(numbers, base.shape, base.strides, base.storage_offset), F.reshape(flat, base.shape))
        return F.clone(_runtime.alias(numbers, view_tensor.shape, view_tensor.strides, view_tensor.storage_offset))


def _extent(base) -> int:
    """How many elements of its storage the base reaches over."""
    return base.storage_offset + sum((n - 1) * s for n, s in zip(base.shape, base.strides, strict=True) if s > 0) + 1


def _rebase(written):
    """The base's history after `written`, a view of it, was written by a recorded operator."""
    base = _runtime.view_base(written)
    positions = _positions(base, written)
    shape = base.shape

    def backward(create_graph, g):
        flat = F.reshape(g, (-1,))
        of_view = F.gather_at(flat, [positions], (0,))
        of_base = F.scatter_at(flat, [positions], (0,), 0.0)
        return F.reshape(of_base, shape), of_view

    _runtime.record_python(backward, "view_write", [base if base.requires_grad else None, written], [base])


def _refresh_view(stale):
    """The view's history after its base was written: it shows the base as it is now."""
    base = _runtime.view_base(stale)
    positions = _positions(base, stale)
    shape = base.shape

    def backward(create_graph, g):
        zeros = F.full((base.size,), 0, dtype=g.dtype)
        return F.reshape(F.scatter_at(zeros, [positions], (0,), g, "add"), shape)

    _runtime.record_python(backward, "view", [base], [stale])


def _check_finite(name, t, where):
    if bool(F.any(F.isnan(t))):
        if where is None:
            raise AutogradError(name, f"the result of shape {t.shape} contains NaN")
        raise AutogradError(name, f"backward gave a gradient of shape {t.shape} that contains NaN\n  recorded at {where}")


def attach():
    for fn in (to, requires_grad_, detach, detach_, register_hook, retain_grad, numpy, __deepcopy__, __reduce_ex__, __format__,
               view_as_self, view):  # fmt: skip
        setattr(Tensor, fn.__name__, fn)
    Tensor.__repr__ = Tensor.__str__ = format_tensor
    Tensor.backward = _tensor_backward
    Tensor.T = property(lambda x: F.permute(x, tuple(range(x.ndim))[::-1]))
    Tensor.mT = property(F.matrix_transpose)
    Tensor.grad_fn = property(_runtime.grad_fn)
    Tensor.cpu = lambda self: self
    _runtime.set_callback("rebase", _rebase)
    _runtime.set_callback("refresh_view", _refresh_view)
    _runtime.set_callback("check_finite", _check_finite)
