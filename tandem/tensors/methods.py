"""What Tensor does in Python: text, conversion, copying, gradients, views. Fast paths live in src/bindings."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes, hooks, promotion
from tandem.autograd import views
from tandem.autograd.backward import _tensor_backward
from tandem.autograd.modes import no_grad
from tandem.devices import code_of, is_meta, of_meta
from tandem.errors import AutogradError, DTypeError, ShapeError, ShardingError
from tandem.graph.ir import Value
from tandem.ops import sparse_methods, torch_names, view_elements
from tandem.ops.memory_format import MemoryFormat
from tandem.ops.transfer import moved
from tandem.repr import format_tensor
from tandem.tensors import typed
from tandem.tensors.array_api import array_namespace, to_device

Tensor = _runtime.Tensor
bool_type = bool


def _moved(x, device, non_blocking: bool):
    return of_meta().like(x) if is_meta(device) else moved(x, code_of(device), non_blocking)


def cuda(self, device=None, non_blocking: bool = False):
    """This tensor on a CUDA device; itself if it is there."""
    return _moved(self, "cuda" if device is None else device, non_blocking)


def cpu(self, non_blocking: bool = False):
    """This tensor in host memory; itself if it is there."""
    return moved(self, 0, non_blocking)


def pin_memory(self):
    """A copy in pinned host memory, which devices copy from by themselves: x.pin_memory().to("cuda", non_blocking=True)."""
    return self if _runtime.is_pinned(self) else _runtime.pin(self)


def is_pinned(self) -> bool:
    """Whether the memory is pinned: host memory that devices copy to and from by themselves."""
    return _runtime.is_pinned(self)


def record_stream(self, stream) -> None:
    """Tells that `stream` uses this tensor too, so that its memory is not given to others before that stream is done with it."""
    _runtime.cuda_record_stream(self, stream._handle)


def to(self, *args, dtype=None, device=None, non_blocking=False, copy=False, memory_format=None):
    """This tensor with another dtype, on another device or in another memory format; itself if nothing changes.

    >>> td.tensor([1, 2]).to(td.float32)
    tensor([1., 2.])
    """
    for a in args:
        if isinstance(a, Tensor):
            dtype, device = a.dtype, a.device
        elif isinstance(a, bool_type):
            non_blocking = a
        elif (
            isinstance(a, dtypes.DType)
            or a in (float, int, bool, complex)
            or (isinstance(a, str) and dtypes.is_name(a))
        ):
            dtype = a
        elif isinstance(a, MemoryFormat):
            memory_format = a
        else:
            device = a
    result = self if dtype is None else F.converted(self, dtypes.as_dtype(dtype))
    if device is not None:
        result = _moved(result, device, non_blocking)
    if memory_format is not None:
        result = F.contiguous(result, memory_format)
    return F.clone(self) if copy and result is self else result


def requires_grad_(self, requires_grad: bool = True):
    """Sets requires_grad in place and returns the tensor."""
    self.requires_grad = requires_grad
    return self


def detach(self):
    """The same memory without history: the result does not require a gradient."""
    if _runtime.in_body():  # gradients of a loop are those of its body's operators: one of them must say so
        return F.stop_gradient(self)
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


def _register_record_hook(self, fn):
    """fn(gradients of the inputs, gradients of the outputs), both tuples, runs after this record in backward; what it returns, if
    anything, replaces the gradients of the inputs.

    >>> x = td.ones(2, requires_grad=True)
    >>> y = (x * 3).sum()
    >>> handle = y.grad_fn.register_hook(lambda given, incoming: (given[0] * 2,))
    >>> y.backward()
    >>> x.grad
    tensor([6., 6.])
    """
    return HookHandle(_runtime.hooks_of_record(self, before=False), fn)


def _register_record_prehook(self, fn):
    """fn(gradients of the outputs), a tuple, runs before this record in backward; what it returns, if anything, replaces them."""
    return HookHandle(_runtime.hooks_of_record(self, before=True), fn)


def register_post_accumulate_grad_hook(self, hook):
    """hook(tensor) runs during backward as soon as this leaf's .grad is complete, for instance to update the parameter and let the
    gradient go.

    >>> w = td.ones(2, requires_grad=True)
    >>> handle = w.register_post_accumulate_grad_hook(lambda p: print(p.grad))
    >>> (w * 3).sum().backward()
    tensor([3., 3.])
    """
    name = "register_post_accumulate_grad_hook"
    if not self.requires_grad:
        raise AutogradError(name, "the tensor does not require grad, so no gradient will come by")
    if not self.is_leaf:
        raise AutogradError(
            name,
            "the tensor was computed from others, so that no gradient accumulates in it",
            fix="use register_hook, or a leaf",
        )
    return HookHandle(_runtime.hooks_after(self), hook)


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
        raise AutogradError(
            "numpy",
            "the tensor requires grad, and NumPy would not record what is done to it",
            fix="use x.detach().numpy()",
        )
    if _runtime.parts_of(self) is not None:
        return self.detach().full_tensor().numpy()
    return _runtime.to_numpy(self.detach() if self.requires_grad else self)


def __copy__(self):
    if not self.is_leaf:
        return self.view_as_self()
    made = self.detach()
    if type(self) is not Tensor:
        made = _runtime.make_subclass(type(self), made)
    made.requires_grad = self.requires_grad
    vars(made).update(vars(self))
    return made


def __deepcopy__(self, memo):
    if not self.is_leaf:
        raise AutogradError(
            "deepcopy",
            "only leaves can be deep-copied; this tensor was computed by a recorded operator",
            fix="copy x.detach()",
        )
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
        raise AutogradError(
            "pickle",
            "only leaves can be pickled; this tensor was computed by a recorded operator",
            fix="pickle x.detach()",
        )
    if _runtime.parts_of(self) is not None:
        raise ShardingError(
            "pickle", "the tensor's elements lie on several ranks",
            fix="pickle x.full_tensor(), or save it with td.distributed.checkpoint",
        )  # fmt: skip
    return _rebuild, (
        type(self),
        _runtime.to_bytes(self),
        self.dtype.name,
        self.shape,
        self.requires_grad,
        dict(vars(self)),
    )


def __format__(self, spec):
    return format(self.item(), spec) if self.ndim == 0 else object.__format__(self, spec)


def share_memory_(self):
    """Moves this tensor to memory that other processes can be given; see tandem.multiprocessing."""
    return hooks.share_memory(self)


def is_shared(self) -> bool:
    """Whether other processes can see this tensor's memory."""
    return _runtime.shared_memory_of(self) is not None


def view_as_self(self):
    """A view of all of it: another tensor on the same memory, with history."""
    return F.reshape(self, self.shape)


def _check_finite(name, t, where):
    if where is None and name.endswith("_backward"):
        return  # the engine looks at what it gives, and knows the call that it is the gradient of
    if bool(F.any(F.isnan(t))):
        if where is None:
            raise AutogradError(name, f"the result of shape {t.shape} contains NaN")
        raise AutogradError(
            name, f"backward gave a gradient of shape {t.shape} that contains NaN\n  recorded at {where}"
        )


def _conjugate(x):
    return F.conj(x) if x.dtype.kind == "complex" else x


def _transposed(x):
    """The transpose of a matrix; in programs that follow PyTorch, the axes of any tensor in reverse."""
    if x.ndim != 2:
        if promotion.axes_first():
            return F.permute(x, tuple(reversed(range(x.ndim))))
        raise ShapeError(
            "T",
            f"x has {x.ndim} axes; the transpose of a matrix is asked for",
            fix="use x.mT for a batch of matrices, or x.permute(...)",
        )
    return F.permute(x, (1, 0))


def _adjoint(x):
    """The transpose of a matrix, with complex numbers conjugated."""
    if x.ndim not in (0, 2):
        raise ShapeError(
            "H", f"x has {x.ndim} axes; the adjoint of a matrix is asked for", fix="use x.mH for a batch of matrices"
        )
    return F.permute(_conjugate(x), (1, 0) if x.ndim else ())


def _batch_adjoint(x):
    """Matrices with their last two axes exchanged and complex numbers conjugated."""
    return F.matrix_transpose(_conjugate(x))


def _set_real(x, value):
    F.copy_(F.real(x), value)


def _set_imag(x, value):
    if not x.dtype.is_complex:
        raise DTypeError("imag", f"x is {x.dtype}, which has no imaginary part to set")
    F.copy_(F.imag(x), value)


def __reversed__(self):
    """The rows from the last to the first."""
    return F.flip(self, (0,)) if self.ndim else self


def attach():
    torch_names.attach(Tensor)
    sparse_methods.attach(Tensor)
    typed.attach(Tensor)
    for fn in (to, cuda, cpu, pin_memory, is_pinned, record_stream, requires_grad_, detach, detach_, register_hook,
               register_post_accumulate_grad_hook,
               retain_grad, numpy, __copy__, __deepcopy__, __reduce_ex__, __format__, view_as_self, share_memory_,
               is_shared, __reversed__):  # fmt: skip
        setattr(Tensor, fn.__name__, fn)
    Tensor.__repr__ = Tensor.__str__ = format_tensor
    Tensor.backward = _tensor_backward
    _tensor_backward.__name__ = "backward"
    for cls in (Tensor, Value):
        cls.T = property(_transposed)
        cls.mT = property(F.matrix_transpose)
        cls.real, cls.imag = property(F.real, _set_real), property(F.imag, _set_imag)
        cls.H = property(_adjoint)
        cls.mH = property(_batch_adjoint)
    Tensor.__array_namespace__ = array_namespace
    Tensor.to_device = to_device
    Tensor.grad_fn = property(_runtime.grad_fn)
    _runtime.GradFn.register_hook = _register_record_hook
    _runtime.GradFn.register_prehook = _register_record_prehook
    Tensor.is_cuda = property(lambda x: _runtime.device_index(x) > 0, doc="Whether the memory is a CUDA device's.")
    _runtime.set_callback("rebase", views.rebase)
    _runtime.set_callback("refresh_view", views.refresh_view)
    _runtime.set_callback("select_view", view_elements.select_view)
    _runtime.set_callback("put_view", view_elements.put_view)
    _runtime.set_callback("check_finite", _check_finite)
