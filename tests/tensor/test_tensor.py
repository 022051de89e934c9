"""The Tensor object: attributes, conversions, subclasses, operators that call what is registered, garbage collection."""

import collections
import gc
import operator
import pickle
import weakref

import numpy as np
import pytest

import tandem as td
from tandem import _runtime, dtypes, errors
from tandem._runtime import Tensor, from_data
from tests.tensor.arrays import sample


class Parameter(Tensor):
    def __new__(cls, data):
        return _runtime.make_subclass(cls, data)


def test_attributes():
    t = _runtime.from_numpy(sample(np.float32)[1:, ::2])
    assert f"{Tensor.__module__}.{Tensor.__qualname__}" == "tandem.Tensor"
    assert (t.shape, t.strides, t.ndim, t.size, t.itemsize, t.nbytes) == ((2, 2), (4, 2), 2, 4, 4, 16)
    assert t.numel() == 4
    assert dtypes.float32 is t.dtype
    assert not t.is_contiguous()
    assert t._version == 0
    assert t.is_leaf
    assert not t.requires_grad
    assert t.grad is None
    with pytest.raises(AttributeError):
        t.shape = (4,)


def test_calling_the_type_takes_sizes_or_elements_as_pytorch_has_it():
    assert Tensor([1.0, 2.0]).tolist() == [1.0, 2.0] and Tensor(2, 3).shape == (2, 3)

    class Plain(Tensor):
        pass

    assert type(Plain(3)) is Plain and Plain(3).shape == (3,)
    with pytest.raises(TypeError, match="sizes, or one sequence of numbers"):
        Tensor([1.0], [2.0])


def test_shapes_are_sizes():
    shape = Tensor(2, 3, 4).shape
    assert (
        type(shape) is td.Size and shape == (2, 3, 4) and hash(shape) == hash((2, 3, 4)) and repr(shape) == "(2, 3, 4)"
    )
    assert shape.numel() == 24 and shape[1:].numel() == 12 and (shape + (5,)).numel() == 120 and td.Size().numel() == 1
    assert td.zeros(shape).shape == shape and td.zeros(24).reshape(shape).shape == shape
    assert type(pickle.loads(pickle.dumps(shape))) is td.Size


def test_deques_and_ranges_become_tensors():
    assert td.tensor(collections.deque([1, 2])).tolist() == [1, 2] and td.tensor(range(3)).tolist() == [0, 1, 2]


def test_single_elements_convert():
    assert (float(from_data([[3.5]])), int(from_data(3.9)), bool(from_data([2]))) == (3.5, 3, True)
    assert [0, 1, 2][from_data(2)] == 2
    assert complex(from_data(1.5)) == 1.5 + 0j
    assert complex(from_data(1 - 2j)) == 1 - 2j
    assert not from_data(-0.0, dtypes.float16)
    assert from_data(float("nan"))
    assert not from_data(0j)
    six = from_data([[1, 2, 3], [4, 5, 6]])
    with pytest.raises(ValueError, match=r"the truth of a tensor with 6 elements is ambiguous\n  fix: use x\.any"):
        bool(six)
    with pytest.raises(ValueError, match="0 elements is ambiguous"):
        bool(from_data([]))
    for convert in (int, float, complex, Tensor.item):
        with pytest.raises(ValueError, match="needs a tensor with one element, this one has 6"):
            convert(six)
    for bad in (1.5, True, [1, 2]):
        with pytest.raises(TypeError, match="as an index"):
            operator.index(from_data(bad))
    for convert in (int, float):
        with pytest.raises(TypeError, match="complex"):
            convert(from_data(1j))


def test_length_and_iteration_need_an_axis():
    assert len(from_data([[1, 2, 3], [4, 5, 6]])) == 2
    with pytest.raises(TypeError, match="len"):
        len(from_data(1))
    with pytest.raises(TypeError, match="0-d"):
        iter(from_data(1))


@pytest.fixture
def registered():
    """Registers a function that gives back its name and operands, for every operator."""
    names = [n for n in _runtime.operator_names if n not in ("iter", "repr", "str")]

    def recorder(name):
        return lambda *operands: (name, *operands)

    before = {name: _runtime.set_operator(name, recorder(name)) for name in names}
    before["iter"] = _runtime.set_operator("iter", None)
    yield
    for name, function in before.items():
        _runtime.set_operator(name, function)


BINARY = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "matrix_multiply": operator.matmul,
    "true_divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "divmod": divmod,
    "power": operator.pow,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
COMPARE = {
    "less": operator.lt,
    "less_equal": operator.le,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
INPLACE = {
    "inplace_add": operator.iadd,
    "inplace_subtract": operator.isub,
    "inplace_multiply": operator.imul,
    "inplace_matrix_multiply": operator.imatmul,
    "inplace_true_divide": operator.itruediv,
    "inplace_floor_divide": operator.ifloordiv,
    "inplace_remainder": operator.imod,
    "inplace_power": operator.ipow,
    "inplace_lshift": operator.ilshift,
    "inplace_rshift": operator.irshift,
    "inplace_and": operator.iand,
    "inplace_or": operator.ior,
    "inplace_xor": operator.ixor,
}
UNARY = {"negative": operator.neg, "positive": operator.pos, "absolute": abs, "invert": operator.invert}


def same(expected, result):
    assert len(expected) == len(result)
    assert all(a is b or a == b for a, b in zip(expected, result, strict=True) if not isinstance(a, Tensor))
    assert all(a is b for a, b in zip(expected, result, strict=True) if isinstance(a, Tensor))


@pytest.mark.usefixtures("registered")
def test_operators_call_what_is_registered_with_operands_as_written():
    t, u = from_data(1.0), Parameter(from_data(2.0))
    others = [u, t, 2, 2.5, True, 1j, np.float32(3), np.float64(3), np.int64(3), np.bool_(True)]
    for name, function in BINARY.items():
        for other in others:
            same((name, t, other), function(t, other))
            same((name, other, t), function(other, t))
    for name, function in INPLACE.items():
        for other in others:
            same((name, t, other), function(t, other))
    for name, function in COMPARE.items():
        for other in others:
            if other is not u:  # Python asks the subclass first, with the operands swapped
                same((name, t, other), function(t, other))
    for name, function in UNARY.items():
        same((name, t), function(t))


@pytest.mark.usefixtures("registered")
def test_arrays_leave_mixed_operations_to_tensors():
    t, a = from_data([1.0, 2.0]), np.ones(2, np.float32)
    for name, function in BINARY.items():
        result = function(a, t)
        assert name == result[0]
        assert result[1] is a
        assert result[2] is t
    result = a < t
    assert result[0] == "greater"
    assert result[1] is t


@pytest.mark.usefixtures("registered")
def test_foreign_operands_get_their_turn():
    class Symbol:
        def __radd__(self, other):
            return "radd"

        def __rpow__(self, other):
            return "rpow"

        def __eq__(self, other):
            return "eq"

        def __gt__(self, other):
            return "gt"

        __hash__ = None

    t = from_data(1.0)
    symbol = Symbol()
    assert t + symbol == "radd"
    assert t**symbol == "rpow"
    assert (t == symbol) == "eq"
    assert (t < symbol) == "gt"
    t2 = t
    t2 += symbol
    assert t2 == "radd"
    for other in ("a", None, [1], object()):
        with pytest.raises(TypeError):
            t + other
        assert not operator.eq(t, other)
        assert t != other
    with pytest.raises(TypeError):
        pow(t, 2, 3)


@pytest.mark.usefixtures("registered")
def test_items_and_iteration():
    t = from_data([[1, 2], [3, 4]])
    same(("getitem", t, [1]), t[[1]])  # plain views do not come by the operator
    assert t[0, ::-1].tolist() == [2, 1] and t[1].tolist() == [3, 4] and t[None, ..., -1].shape == (1, 2)
    t[0] = 5
    assert 5 in t
    assert [row.tolist() for row in t] == [[1, 2], [3, 4]]  # the operators of this file write nothing
    assert list(iter(from_data([]))) == []
    with pytest.raises(TypeError, match="deleted"):
        del t[0]


def test_operators_must_exist():
    with pytest.raises(ValueError, match="no operator 'frobnicate'"):
        _runtime.set_operator("frobnicate", abs)


def test_hash_is_identity():
    t = from_data(1.0)
    assert hash(t) == hash(t)
    table = {t: 1}
    assert table[t] == 1
    assert from_data(1.0) not in [None]


def test_attributes_subclasses_and_weak_references():
    t = from_data(1.0)
    t.note = "x"
    assert t.__dict__ == {"note": "x"}
    gone = weakref.ref(t)
    del t
    assert gone() is None
    p = Parameter(from_data([1.0, 2.0]))
    p.name = "w"
    assert isinstance(p, Tensor)
    assert type(p) is Parameter
    assert p.name == "w"
    gone = weakref.ref(p)
    data = p.data
    assert type(data) is Tensor
    del p
    assert gone() is None
    assert data.tolist() == [1.0, 2.0]
    with pytest.raises(TypeError, match="not a subclass"):
        _runtime.make_subclass(int, data)


@pytest.mark.parametrize("link", ["attribute", "grad", "parameter"])
def test_cycles_are_collected(link):
    gc.collect()
    before = _runtime.memory_stats()["live_blocks"]
    t = from_data([1.0])
    if link == "parameter":
        t = Parameter(t)
        t.self = t
    elif link == "attribute":
        t.self = [t]
    else:
        u = from_data([1.0])
        t.grad, u.grad = u, t
        del u
    gone = weakref.ref(t)
    del t
    assert gone() is not None
    gc.collect()
    assert gone() is None
    assert before == _runtime.memory_stats()["live_blocks"]


def test_long_chains_are_freed_without_recursion():
    t = from_data(0.0)
    for _ in range(200_000):
        u = from_data(0.0)
        u.grad = t
        t = u
    del t, u
    t = from_data(0.0)
    for _ in range(50_000):
        u = Parameter(from_data(0.0))
        u.next = t
        t = u
    del t, u


def test_requires_grad_is_for_floating_point_leaves():
    t = from_data([1.0])
    t.requires_grad = True
    assert t.requires_grad
    t.requires_grad = False
    t._set_requires_grad(True)
    assert t.requires_grad
    assert not t.data.requires_grad
    with pytest.raises(
        errors.AutogradError, match="only floating-point tensors can require gradients; this one is int64"
    ):
        from_data([1]).requires_grad = True
    with pytest.raises(TypeError, match="True or False"):
        t.requires_grad = 1


def test_a_leaf_takes_data_of_another_shape_or_dtype():
    t = from_data([1.0])
    t.requires_grad = True
    other = from_data([2.0, 3.0])
    t.data = other
    assert t.tolist() == [2.0, 3.0] and t.requires_grad
    (t * t).sum().backward()
    assert t.grad.tolist() == [4.0, 6.0]
    t.data = t.data.to(td.float16)
    assert t.dtype is td.float16
    with pytest.raises(errors.AutogradError, match="shape and dtype"):
        (t * 2).data = from_data([1.0])
    with pytest.raises(errors.AutogradError, match="shape and dtype"):
        other[:1].data = from_data([2.0, 3.0])
    with pytest.raises(TypeError, match="cannot hold int64"):
        t.data = from_data([1, 2, 3])


def test_grad_must_fit_its_tensor():
    t = from_data([1.0, 2.0])
    g = from_data([3.0, 4.0])
    t.grad = g
    assert t.grad is g
    t.grad = None
    assert t.grad is None
    t.grad = g
    del t.grad
    assert t.grad is None
    with pytest.raises(ValueError, match=r"grad has shape \(1,\) and the tensor \(2,\)"):
        t.grad = from_data([1.0])
    with pytest.raises(TypeError, match="grad is int64 and the tensor float32"):
        t.grad = from_data([1, 2])
    with pytest.raises(TypeError, match="Tensor or None"):
        t.grad = 1.0


def test_objects_are_reused_clean():
    for _ in range(1000):
        t = from_data([1.0])
        t.note = 1
        t.grad = from_data([2.0])
        del t
        t = from_data([1.0])
        assert t.__dict__ == {}
        assert t.grad is None
        assert not t.requires_grad


def test_taking_a_tensor_apart_is_one_record():
    x = td.randn(3, 4, requires_grad=True)
    with td.profile() as recorded:
        q, k, v = x
        (q * 2 + k * 3 + v).sum().backward()
    names = [row.name for row in recorded.rows() if "backward" in row.name]
    assert sum("unbind" in name for name in names) == 1 and not any("index" in name for name in names)
    assert x.grad.tolist() == [[2.0] * 4, [3.0] * 4, [1.0] * 4]


def test_rows_are_views_with_and_without_gradients():
    leaf = td.ones(3, 2, requires_grad=True)
    x = leaf * 1
    for row in x:
        row.mul_(2)
    x.sum().backward()
    assert x.tolist() == [[2.0, 2.0]] * 3 and leaf.grad.tolist() == [[2.0, 2.0]] * 3
    plain = td.zeros(20, 2)
    for i, row in enumerate(plain):
        row.add_(i)
    assert plain[:, 0].tolist() == list(range(20)) and list(td.zeros(0, 2)) == []
