"""Names that PyTorch users reach for and that say the same in other words: synonyms, predicates, facts about tensors, in-place
forms. What PyTorch has and this library leaves out on purpose is listed, with reasons, in docs/pytorch.md."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes, repr
from tandem.devices import code_of
from tandem.errors import AutogradError, DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.create import finish
from tandem.ops.define import FUNCTIONS, METHODS, OWN_METHODS, alias, inplace, method, op, public

# -- other names for functions

_SAME = {
    "sgn": "sign",
    "split_with_sizes": "split",
    "unsafe_split": "split",
    "unsafe_split_with_sizes": "split",
    "unsafe_chunk": "chunk",
    "constant_pad_nd": "pad",
    "negative_": "neg_",
}


def _alias_all(names: dict):
    for name, function in names.items():
        if name not in FUNCTIONS and function in FUNCTIONS:
            alias(name, FUNCTIONS[function])
            if function in METHODS:
                METHODS.add(name)


_alias_all(_SAME)


@op
def t(x: Tensor):
    """x with its two axes exchanged; vectors and numbers as they are. A view.

    >>> td.t(td.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    if x.ndim > 2:
        raise ShapeError("t", f"x has {x.ndim} axes; at most 2 are possible", fix="use x.mT or x.permute(...)")
    return F.Permute((1, 0))(x) if x.ndim == 2 else F.Reshape(x.shape)(x)


@op
def fill(x: Tensor, value: Written):
    """A tensor of the shape and dtype of x with one value everywhere.

    >>> td.fill(td.zeros(2), 3)
    tensor([3., 3.])
    """
    if getattr(value, "ndim", 0):
        raise ShapeError("fill", f"value has {value.ndim} axes; it must be a number or have none")
    return F.full_like(x, value)


@public
def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False):
    """A 0-d tensor with one number, float32 by default.

    >>> td.scalar_tensor(2)
    tensor(2.)
    """
    return F.full((), s, dtype=dtype or dtypes.default_float(), device=device, requires_grad=requires_grad)


@public(name="range")
def range_(start=0, end=None, step=1, *, dtype=None, device=None, requires_grad=False):
    """Numbers from start to end, which is included, as PyTorch's old function has it. td.arange leaves the end out.

    >>> td.range(1, 4)
    tensor([1., 2., 3., 4.])
    """
    if end is None:
        start, end = 0, start
    count = int((end - start) / step) + 1
    made = F.arange(count, dtype=dtypes.float64) * step + start
    return finish(F.astype(made, dtype or dtypes.default_float()), device, requires_grad)


@public
def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """A 1-d tensor on the memory of an object with Python's buffer protocol.

    >>> td.frombuffer(bytearray([1, 2, 3]), dtype=td.uint8, offset=1)
    tensor([2, 3], dtype=uint8)
    """
    import numpy

    made = _runtime.from_numpy(numpy.frombuffer(buffer, dtypes.as_dtype(dtype).numpy, count, offset))
    return made.requires_grad_(requires_grad)


@public
def empty_strided(size, stride, *, dtype=None, device=None, requires_grad=False):
    """A tensor of this size whose elements lie `stride` apart in memory and are not initialised.

    >>> td.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    reach = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if 0 not in tuple(size) else 0
    block = _runtime.empty((reach,), dtypes.as_dtype(dtype or dtypes.default_float()), code_of(device))
    return F.as_strided(block, tuple(size), tuple(stride)).detach().requires_grad_(requires_grad)


@public
def empty_permuted(size, physical_layout, *, dtype=None, device=None, requires_grad=False):
    """A tensor of this size whose axes lie in memory in the given order, outermost first; not initialised.

    >>> td.empty_permuted((2, 3), (1, 0)).stride()
    (1, 2)
    """
    order = tuple(physical_layout)
    if sorted(order) != list(range(len(tuple(size)))):
        raise ValueRangeError(
            "empty_permuted", f"physical_layout is {order}; it must have each of {len(tuple(size))} axes once"
        )
    shape = tuple(size[a] for a in order)
    block = _runtime.empty(shape, dtypes.as_dtype(dtype or dtypes.default_float()), code_of(device))
    return F.permute(block, tuple(order.index(a) for a in range(len(order)))).detach().requires_grad_(requires_grad)


# -- predicates and facts


@public
def is_tensor(obj) -> bool:
    """Whether obj is a tensor.

    >>> td.is_tensor(td.zeros(1)), td.is_tensor([1])
    (True, False)
    """
    return isinstance(obj, (_runtime.Tensor, Value))


@public(method=True)
def is_signed(x: Tensor) -> bool:
    """Whether the type of x has negative numbers.

    >>> td.is_signed(td.zeros(1, dtype=td.uint8))
    False
    """
    return x.dtype.is_signed


@public(method=True)
def is_nonzero(x: Tensor) -> bool:
    """Whether the only element of x is not zero.

    >>> td.is_nonzero(td.tensor([3.0]))
    True
    """
    if x.size != 1:
        raise ShapeError("is_nonzero", f"x has {x.size} elements; exactly 1 is needed", fix="use x.any() or x.all()")
    return bool(F.reshape(x, ()))


@public(method=True)
def is_same_size(x: Tensor, y: Tensor) -> bool:
    """Whether x and y have one shape.

    >>> td.is_same_size(td.zeros(2), td.ones(2))
    True
    """
    return tuple(x.shape) == tuple(y.shape)


@public(method=True)
def is_inference(x: Tensor) -> bool:
    """Whether x was made in inference mode.

    >>> td.is_inference(td.zeros(1))
    False
    """
    return _runtime.is_inference(x)


@public
def numel(x: Tensor) -> int:
    """How many elements x has.

    >>> td.numel(td.zeros(2, 3))
    6
    """
    return int(x.size)


@public
def promote_types(type1, type2):
    """The dtype that two dtypes promote to.

    >>> td.promote_types(td.int32, td.float16)
    tandem.float16
    """
    return dtypes.promote(dtypes.as_dtype(type1), dtypes.as_dtype(type2))


@public
def get_default_dtype():
    """The dtype of floats that nothing else is said about: float32 unless td.set_default_dtype changed it.

    >>> td.get_default_dtype()
    tandem.float32
    """
    return dtypes.default_float()


@public
def set_default_dtype(d):
    """Makes another floating dtype that of Python floats, of new tensors and of what integers become where floats are needed. One
    setting for the whole process.

    >>> td.set_default_dtype(td.float64)
    >>> td.tensor([1.5]).dtype
    tandem.float64
    >>> td.set_default_dtype(td.float32)
    """
    d = dtypes.as_dtype(d)
    if not d.is_floating:
        raise DTypeError("set_default_dtype", f"{d} is not a floating dtype", fix="use td.float32 or td.float64")
    _runtime.set_default_dtype_code(d.code)
    dtypes.set_default_float(d)


@public
def get_num_threads() -> int:
    """How many threads kernels run on.

    >>> td.get_num_threads() > 0
    True
    """
    return _runtime.num_threads()


@public
def set_num_threads(n: int):
    """Sets how many threads kernels run on.

    >>> td.set_num_threads(td.get_num_threads())
    """
    if n < 1:
        raise ValueRangeError("set_num_threads", f"n={n}; there must be at least one thread")
    _runtime.set_num_threads(n)


@public
def detach(x: Tensor):
    """The same memory without history: the result does not require a gradient.

    >>> td.detach(td.ones(1, requires_grad=True)).requires_grad
    False
    """
    return x.detach()


@public
def detach_(x: Tensor):
    """Forgets the history of x in place: it becomes a leaf.

    >>> td.detach_(td.ones(1)).is_leaf
    True
    """
    return x.detach_()


@public
def get_device(x: Tensor) -> int:
    """The number of the device of x; -1 for the CPU.

    >>> td.get_device(td.zeros(1))
    -1
    """
    return x.get_device()


@public
def typename(obj) -> str:
    """The full name of the type of obj.

    >>> td.typename(td.zeros(1))
    'tandem.Tensor'
    """
    if isinstance(obj, _runtime.Tensor):
        return f"tandem.{type(obj).__name__}"
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


@public
def to_dlpack(x: Tensor):
    """A DLPack capsule on the memory of x, which can be taken once; of read-only memory one of DLPack 1.0, which says so. Other
    libraries take x itself too: torch.from_dlpack(x).

    >>> type(td.to_dlpack(td.zeros(1))).__name__
    'PyCapsule'
    """
    try:
        return x.__dlpack__()
    except BufferError:
        return x.__dlpack__(max_version=(1, 0))


@public
def is_inference_mode_enabled() -> bool:
    """Whether inference mode is active.

    >>> td.is_inference_mode_enabled()
    False
    """
    return _runtime.inference_enabled()


@public
def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """How tensors are shown: digits, from how many elements on they are summarised, how many of those are shown at each end, the
    width of lines, and whether floats have exponents. profile: "default", "short" or "full".

    >>> td.set_printoptions(precision=2)
    >>> td.tensor([3.14159])
    tensor([3.14])
    >>> td.set_printoptions(profile="default")
    """
    repr.set_options(precision, threshold, edgeitems, linewidth, profile, sci_mode)


@public
def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False):
    """Whether results of this process must not depend on the number of threads, nor on what a measurement chose.

    The same call with the same number of threads gives the same bits in any case, and most operators for any number of threads.
    Without this, convolutions and some matrix products are computed by oneDNN, whose sums depend on it, and large factorisations by
    several threads of OpenBLAS; with it, by our own routines and by one thread, which may take longer. On CUDA devices no kernel
    adds floats in an order that varies; with this, algorithms of cuBLASLt and cuDNN are not chosen by their times either. A
    convolution that cuDNN has no deterministic algorithm for raises an error that says so, whatever warn_only is: no operator is
    left to warn about.

    >>> td.use_deterministic_algorithms(True)
    >>> td.are_deterministic_algorithms_enabled()
    True
    >>> td.use_deterministic_algorithms(False)
    """
    _runtime.set_deterministic(bool(mode))


@public
def are_deterministic_algorithms_enabled() -> bool:
    """What td.use_deterministic_algorithms was told last; False in the beginning.

    >>> td.are_deterministic_algorithms_enabled()
    False
    """
    return _runtime.deterministic()


# -- methods that are no functions


@method
def dim(x) -> int:
    """The number of axes."""
    return x.ndim


@method
def nelement(x) -> int:
    """How many elements there are."""
    return int(x.size)


@method
def stride(x, axis=None, *, dim=None):
    """How many elements apart neighbours along each axis lie in memory, or along one axis."""
    axis = axis if dim is None else dim
    return tuple(x.strides) if axis is None else x.strides[axis]


@method
def dim_order(x) -> tuple:
    """Axes in the order in which they lie in memory, outermost first."""
    return tuple(sorted(range(x.ndim), key=lambda a: -x.strides[a]))


@method(name="get_device")
def _get_device(x) -> int:
    """The number of the device; -1 for the CPU."""
    index = getattr(x.device, "index", None)
    return -1 if str(x.device).startswith("cpu") else (index or 0)


@method
def resolve_neg(x):
    """This tensor: negation is never put off."""
    return x


@method
def is_neg(x) -> bool:
    """Whether negation was put off: never."""
    return False


@method
def is_set_to(x, tensor) -> bool:
    """Whether two tensors are the same elements of the same memory."""
    same = x._address() == tensor._address() and x.dtype is tensor.dtype
    return same and x.shape == tensor.shape and x.strides == tensor.strides


@method(name="equal")
def _equal(x, other) -> bool:
    """As in PyTorch: whether shapes and all elements are equal. Element by element, x == other or td.equal."""
    return F.array_equal(x, other)


@method(name="polygamma")
def _polygamma(x, n):
    """td.polygamma(n, x)."""
    return F.polygamma(n, x)


@method(name="polygamma_")
def _polygamma_in_place(x, n):
    """In-place form of x.polygamma(n)."""
    return F.copy_(x, F.polygamma(n, x))


@method
def new_empty_strided(x, size, stride, *, dtype=None, device=None, requires_grad=False):
    """td.empty_strided with the dtype of this tensor."""
    return F.empty_strided(size, stride, dtype=dtype or x.dtype, requires_grad=requires_grad)


OWN_METHODS["ndimension"] = dim
OWN_METHODS["element_size"] = lambda x: x.dtype.itemsize
OWN_METHODS["element_size"].__doc__ = "Bytes of one element."


# -- in place: comparisons write 0 and 1 into x


def _comparison(name: str):
    function = FUNCTIONS[name]
    inplace(function, name + "_")


for _name in ("eq", "ne", "lt", "le", "gt", "ge", "float_power", "nextafter", "sgn"):
    _comparison(_name)
for _name in ("arctan2", "divide", "absolute", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "fix"):
    if _name + "_" not in FUNCTIONS and _name in FUNCTIONS:
        inplace(FUNCTIONS[_name], _name + "_")
_alias_all({
    "not_equal_": "ne_", "less_": "lt_", "less_equal_": "le_", "greater_": "gt_", "greater_equal_": "ge_",
})  # fmt: skip
for _name in (
    "celu",
    "elu",
    "hardtanh",
    "leaky_relu",
    "selu",
    "threshold",
    "dropout",
    "alpha_dropout",
    "feature_alpha_dropout",
):
    if _name + "_" not in FUNCTIONS:
        inplace(FUNCTIONS[_name])


# -- in place: other axes for the same memory


def _turned(name: str, view):
    def turn(x, *args, **kwargs):
        recorded = x.requires_grad and _runtime.grad_enabled()
        if recorded and x.is_leaf:
            raise AutogradError(
                name, "a leaf that requires grad cannot change its axes in place", fix=f"use x = x.{name[:-1]}(...)"
            )
        if isinstance(x, Value):
            raise DTypeError(
                name, "a value in a graph cannot change its axes in place", fix=f"use x = x.{name[:-1]}(...)"
            )
        made = view(x, *args, **kwargs)
        _runtime.take_geometry(x, made)
        if recorded:
            _runtime.share_history(x, made)
        return x

    turn.__name__ = turn.__qualname__ = name
    turn.__doc__ = f"In-place form of `{name[:-1]}`: this tensor itself gets the other axes."
    OWN_METHODS[name] = turn


for _name in ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims", "as_strided"):
    if _name in FUNCTIONS:
        _turned(_name + "_", OWN_METHODS.get(_name, FUNCTIONS[_name]))


@public(method=True)
def adjoint(x: Tensor):
    """Matrices with their last two axes exchanged and complex numbers conjugated. A view of real ones.

    >>> td.adjoint(td.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    return x.mH


# -- x.size: a number, as NumPy and the Array API have it, that can also be called, as PyTorch's is: x.size(), x.size(0)


class Size(int):
    """How many elements a tensor has; called, its shape or the size of one axis."""

    def __call__(self, axis=None, *, dim=None):
        axis = axis if dim is None else dim
        return self.shape if axis is None else self.shape[axis]


def attach(tensor):
    """What must be a property."""
    number = tensor.size

    def size(x):
        made = Size(number.__get__(x))
        made.shape = x.shape
        return made

    tensor.size = property(
        size, doc="How many elements there are; x.size() is the shape, x.size(0) the size of an axis."
    )
    tensor.is_cpu = property(lambda x: str(x.device).startswith("cpu"), doc="Whether the memory is the CPU's.")
    tensor.is_cuda = property(lambda x: str(x.device).startswith("cuda"), doc="Whether the memory is a GPU's.")
    tensor.retains_grad = property(_runtime.retain_grad_flag, doc="Whether .grad is kept though this is no leaf.")
    for name in ("is_meta", "is_sparse", "is_quantized", "is_nested", "is_mps", "is_xla", "is_xpu", "is_mkldnn"):
        setattr(tensor, name, False)


@method
def resize_(x, *sizes, memory_format=None):
    """Gives the tensor another shape in place: elements stay in the order in which they lie in memory. If there are to be more, the
    tensor gets new memory, and the new elements are undefined.

    >>> x = td.arange(6)
    >>> x.resize_(2, 2)
    tensor([[0, 1],
            [2, 3]])
    """
    sizes = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else tuple(sizes)
    if any(not hasattr(n, "__index__") or n < 0 for n in sizes):
        raise ShapeError("resize_", f"sizes are {sizes}; they must be integers and not negative")
    if x.requires_grad:
        raise AutogradError(
            "resize_", "the tensor requires grad, and a change of its memory is not recorded", fix="use x.detach()"
        )
    strides, count = [], 1
    for n in reversed(sizes):
        strides.insert(0, count)
        count *= max(n, 1)
    try:
        made = _runtime.alias(x, sizes, tuple(strides), x.storage_offset())
    except IndexError:  # its memory is too small
        made = _runtime.empty(sizes, x.dtype, _runtime.device_index(x))
        flat, old = F.reshape(made, (-1,)), F.reshape(x, (-1,))
        F.copy_(flat[: old.size], old)
    _runtime.set_data(x, made)
    return x


@method
def resize_as_(x, other, memory_format=None):
    """x.resize_(other.shape)."""
    return resize_(x, other.shape)
