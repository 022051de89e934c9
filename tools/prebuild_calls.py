"""The calls whose kernels come with the package: every public function with the arguments that people give it.

cases() lists them as (name, function without arguments). Two things make them: the examples in the docstrings of all public
functions, which the tests keep complete and correct, and a table of arguments by kind, tried on every function. A call that a
function refuses says so before anything is compiled. Whatever is missing here is compiled when it is first used.
"""

import doctest
import functools
import importlib
import inspect

import tandem as td
from tandem import nn
from tandem.nn import functional as F
from tandem.ops import from_data
from tandem.ops.define import FUNCTIONS
from tandem.tensors import constructors

FLOATS = (td.float32, td.float64)
COMPLEX = (td.complex64, td.complex128)
INTEGERS = (td.int64, td.int32)
HALVES = (td.bfloat16, td.float16)

# These change the state of the process or of files, wait, or print.
LEFT_OUT = """
    compile print seed manual_seed save load benchmark profile bisect switches set_default_device set_default_dtype
    set_num_threads set_grad_enabled set_rng_state set_printoptions initial_seed while_loop cond scan map fori_loop
    associative_scan vmap grad jvp vjp value_and_grad jacfwd jacrev hessian linearize remat from_file
""".split()  # noqa: SIM905


def spaces() -> dict[str, dict]:
    """{prefix: {name: function}} of what users call."""
    found = {"": {n: f for n, f in FUNCTIONS.items() if not n.startswith("_")}}
    for module in (constructors, from_data):
        for name, thing in vars(module).items():
            if inspect.isfunction(thing) and thing.__module__ == module.__name__ and getattr(td, name, None) is thing:
                found[""][name] = thing
    for space in ("linalg", "fft", "special", "random"):
        module = getattr(td, space)
        found[space + "."] = {n: getattr(module, n) for n in module.__all__}
    found["F."] = {n: getattr(F, n) for n in dir(F) if not n.startswith("_")}
    for prefix, functions in found.items():
        found[prefix] = {
            n: f
            for n, f in sorted(functions.items())
            if callable(f) and not isinstance(f, type) and n not in LEFT_OUT and _is_ours(f)
        }
    return found


def _is_ours(function) -> bool:
    return type(function).__name__ == "OpFunction" or (getattr(function, "__module__", None) or "").startswith(
        "tandem."
    )


# -- calling


def tensors_in(things) -> list:
    found = []
    for thing in things:
        if isinstance(thing, td.Tensor):
            found.append(thing)
        elif isinstance(thing, (list, tuple)):
            found += tensors_in(thing)
        elif isinstance(thing, dict):
            found += tensors_in(thing.values())
    return found


def _replaced(thing, new: dict):
    if isinstance(thing, td.Tensor):
        return new.get(id(thing), thing)
    if type(thing) in (list, tuple):
        return type(thing)(_replaced(t, new) for t in thing)
    return thing


def call(function, *args, **keywords):
    """Calls it; then once more with gradients by everything that can have one."""
    return _with_gradients(function, args, keywords, (_ones,))


def call_and_sum(function, *args, **keywords):
    """As call(), and with the gradient that y.sum().backward() gives: the same number everywhere."""
    return _with_gradients(function, args, keywords, (_ones, lambda t: td.ones((), dtype=t.dtype).expand(t.shape)))


def _ones(t):
    return td.ones(t.shape, dtype=t.dtype)


def _with_gradients(function, args, keywords, makers):
    result = function(*args, **keywords)
    differentiable = [t for t in tensors_in((args, keywords)) if t.dtype.is_inexact]
    if not differentiable or getattr(function, "__name__", "_").endswith("_") or "out" in keywords:
        return result
    if not any(t.dtype.is_inexact for t in tensors_in((result,))):
        return result
    # By all of them; and by the first alone, as of a prediction that is compared with data.
    some = [differentiable]
    if len(differentiable) > 1 and differentiable[0].dtype is td.float32:
        some.append(differentiable[:1])
    for wanted in some:
        leaves = {id(t): t.detach().requires_grad_(True) for t in wanted}
        given = {name: _replaced(value, leaves) for name, value in keywords.items()}
        outputs = _try(function, *_replaced(args, leaves), **given)  # some have no gradient
        outputs = [t for t in tensors_in((outputs,)) if t.requires_grad]
        for make in makers if outputs else ():
            gradients = [make(t) for t in outputs]
            _try(td.autograd.grad, outputs, list(leaves.values()), gradients, retain_graph=True, allow_unused=True)
    return result


class _Calling:
    """A namespace whose functions go through call()."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        thing = getattr(self._module, name)
        if inspect.ismodule(thing):
            return _Calling(thing)
        if type(thing).__name__ == "OpFunction" or inspect.isfunction(thing):
            return functools.partial(call_and_sum, thing) if name not in LEFT_OUT else thing
        return thing


def run_example(text: str, dtype):
    """The lines of a docstring's example, with Python's numbers as tensors of this type."""
    before = td.get_default_dtype()
    td.set_default_dtype(dtype)
    try:
        names = {"td": _Calling(td), "F": _Calling(F), "nn": nn, "tandem": td, "print": lambda *values: None}
        for example in doctest.DocTestParser().get_examples(text):
            source = example.source
            try:
                code = compile(source, "<example>", "eval")
            except SyntaxError:
                exec(compile(source, "<example>", "exec"), names)
            else:
                repr(eval(code, names))
    finally:
        td.set_default_dtype(before)


# -- arguments by kind


def _numbers(*shape, dtype=td.float32):
    count = 1
    for n in shape:
        count *= n
    steps = td.arange(1, count + 1, dtype=td.int64).reshape(shape)
    if dtype is td.bool:
        return steps % 2 == 0
    if dtype in INTEGERS:
        return (steps % 5 + 1).to(dtype)
    real = steps.to(td.float64) * 0.37 % 0.8 + 0.1
    if dtype in COMPLEX:
        return td.complex(real, real.flip((0,)) if shape else real).to(dtype)
    return real.to(dtype)


@functools.cache
def arguments(dtype) -> list[tuple]:
    """What is tried on every function, in order: (arguments, whether with gradients)."""
    new = functools.partial(_numbers, dtype=dtype)
    v, m, q, t, image = new(7), new(4, 5), new(4, 4), new(2, 3, 8), new(2, 3, 8, 8)
    number = {td.bool: True, td.int64: 2, td.int32: 2}.get(dtype, 0.5)
    first = [(v,), (m,), (v, v), (m, m), (v, number)]
    if dtype in HALVES or dtype is td.int32:
        return [(args, False) for args in first]
    second = [(q,), (m, m[0]), (q, q), (m, m, m)]
    if dtype is td.bool or dtype in COMPLEX:
        return [(args, dtype is td.complex64 and args[0] is v) for args in first + second]
    third = [(m, number), (number, m), (t,), (m, -1), (m, 0), (q, q[0]), (m, number, number), (new(),)]
    if dtype is td.int64:
        return [(args, False) for args in first + second + third]
    index, mask = td.tensor([1, 0, 2, 1]), td.tensor([True, False, True, True])
    fourth = [
        (image,), (m, index), (m, 0, index), (v, 0, index), (m, 0, td.tensor([[0, 1, 1, 0, 1]])), (mask, q, q), (q, mask),
        (image, 2), (t, 2), (t, new(4, 3, 3)), (image, new(4, 3, 3, 3)), (image, new(4, 3, 3, 3), new(4)), (t, new(2, 8, 3)),
        (m, new(6, 5), new(6)), (m, new(5, 6)), (q, q, q), ([v, v],), ([m, m],), (3,), (3, 3), ((2, 3),), (m, (1, 0)), (m, [1, 1]),
        (image, (5, 5)), (image, image, image), (0, 5), (image, (0, 2, 3)), (image, [1, 1, 1, 1]),
    ]  # fmt: skip
    if dtype is td.float64:
        return [(args, args[0] is v) for args in first + second + third + fourth]
    return [(args, not any(args is p for p in third)) for args in first + second + third + fourth]


# How many of these lists a function is called with, at most; with types that are not named here 3.
MOST = {td.float32: 9, td.float64: 5, td.int64: 5}
# What is called with float16, bfloat16 and int32 too.
COMMON = """
    abs add argmax argmin clip concat cos divide dropout embedding equal exp gather gelu greater hardtanh layer_norm
    less linear log log_softmax matmul max maximum mean min minimum mul multiply negative pow relu reshape rms_norm
    rsqrt sigmoid silu sin softmax sort sqrt square stack std sub subtract sum tanh topk tril triu var where cumsum
    cumulative_sum prod all any flip transpose not_equal remainder floor_divide bitwise_and bitwise_or bitwise_xor
    sign floor ceil round unique isin nonzero repeat one_hot
""".split()  # noqa: SIM905
AXES = ({"axis": 0}, {"axis": -1}, {"axis": -1, "keepdims": True})


def by_kind(name: str, function, dtype) -> int:
    """Calls a function with all of arguments() that it takes; how many it took."""
    taken = 0
    for args, with_gradients in arguments(dtype):
        if name.endswith("_"):  # writes into its first argument
            args = tuple(a.clone() if isinstance(a, td.Tensor) else a for a in args)
        calling = call if with_gradients else _plainly
        if with_gradients and len(args) == 1 and dtype is td.float32:
            calling = call_and_sum
        try:
            calling(function, *args)
        except Exception:
            continue
        taken += 1
        if taken >= MOST.get(dtype, 3):
            break
        if len(args) == 1 and isinstance(args[0], td.Tensor) and args[0].shape == (4, 5):
            for keywords in AXES:
                try:
                    calling(function, *args, **keywords)
                except Exception:
                    break
    return taken


def _plainly(function, *args, **keywords):
    return function(*args, **keywords)


# -- what is not a function by name


def operators(dtype):
    x, row, number = _numbers(4, 5, dtype=dtype), _numbers(5, dtype=dtype), 2
    import operator as o

    rare = dtype not in (*FLOATS, td.int64)
    for f in (o.add, o.sub, o.mul, o.truediv, o.floordiv, o.mod, o.pow, o.lt, o.le, o.gt, o.ge, o.eq, o.ne, o.and_, o.or_, o.xor,
              o.lshift, o.rshift):  # fmt: skip
        for args in ((x, x), (x, number), (number, x), (x, row), (x, 0.5), (0.5, x), (x[:, 0], x[:, 1]), (x, x[:, :1]))[
            : 3 if rare else 8
        ]:
            _try(_plainly if rare else call, f, *args)
        for value in (x, number, row, 0.5)[: 1 if rare else 4]:
            _try(getattr(o, "i" + f.__name__.rstrip("_"), f), x.clone(), value)
    for f in (o.neg, o.pos, o.abs, o.invert):
        _try(call, f, x)
        _try(call, f, row)


def indexing(dtype):
    x, v = _numbers(4, 5, 3, dtype=dtype), _numbers(7, dtype=dtype)
    index, mask = td.tensor([1, 0, 2]), td.arange(4) > 1
    keys = [
        0, -1, slice(1, 3), slice(None, None, 2), (slice(None), 0), (..., -1), (..., None), index, (slice(None), index), mask,
        (0, 1), (slice(1, 3), slice(None, 2)), (index, index), [0, 2], (..., slice(None, None, 2)),
    ]  # fmt: skip
    for key in keys:
        _try(call, lambda t, key=key: t[key], x)
        for value in (1, x[key].clone()):
            _try(x.clone().__setitem__, key, value)
    for key in (0, slice(1, 4), slice(None, None, 2), index, v == v[0], None):
        _try(call, lambda t, key=key: t[key], v)
        _try(v.clone().__setitem__, key, 1)
    _try(x.clone().__setitem__, x == x, 1)
    _try(call, lambda t: t[t == t], x)
    for t in (x, x[0], v, v[0], x.permute(2, 0, 1)):
        _try(repr, t)
        _try(t.tolist)
        for f in ("clone", "contiguous", "copy_", "item", "bool"):
            _try(lambda f=f, t=t: getattr(t, f)(*([t.clone()] if f == "copy_" else [])))
        _try(lambda t=t: bool(td.all(t == t)))
        _try(lambda t=t: t.clone().fill_(1))
        _try(lambda t=t: t.clone().zero_())


def conversions(dtype):
    for other in (*FLOATS, *COMPLEX, *INTEGERS, *HALVES, td.bool, td.uint8, td.int8, td.int16):
        x = _numbers(4, 5).to(other)
        for t in (x, x[0], x.T, x[:, 0], x[0, 0]):
            _try(call, lambda t: t.to(dtype), t)
        _try(lambda x=x: td.zeros((4, 5), dtype=dtype).copy_(x))
        for f in (td.add, td.multiply, td.where):
            a, b = x, td.ones((4, 5), dtype=dtype)
            _try(f, *((a, b) if f is not td.where else (td.ones((4, 5), dtype=td.bool), a, b)))


def creation(dtype):
    for f in (td.zeros, td.ones, td.empty, td.rand, td.randn):
        for shape in ((), (3,), (2, 3)):
            _try(f, shape, dtype=dtype)
    x = _numbers(4, 5, dtype=dtype)
    for f in (td.zeros_like, td.ones_like, td.empty_like, td.rand_like, td.randn_like):
        _try(f, x)
    for args in ((3,), (1, 5), (0, 10, 2), (0.0, 1.0, 0.25)):
        _try(td.arange, *args, dtype=dtype)
    for f, args in ((td.full, ((2, 3), 2)), (td.full, ((2, 3), 0.5)), (td.eye, (3,)), (td.eye, (3, 4)), (td.linspace, (0, 1, 5)),
                    (td.randint, (0, 10, (3,))), (td.randperm, (5,)), (td.full_like, (x, 2)), (td.randint_like, (x, 5)),
                    (td.logspace, (0, 1, 5))):  # fmt: skip
        _try(f, *args, dtype=dtype)
    for f, args in (("normal_", ()), ("uniform_", ()), ("bernoulli_", ()), ("exponential_", ()), ("random_", ()),
                    ("uniform_", (-1, 1)), ("normal_", (0, 0.02)), ("random_", (0, 10)), ("bernoulli_", (0.3,))):  # fmt: skip
        _try(lambda f=f, args=args: getattr(x.clone(), f)(*args))


LAYERS = {
    "Linear(5, 6)": (4, 5), "Linear(5, 6, bias=False)": (4, 5), "Linear(5, 1)": (4, 5), "Conv1d(3, 4, 3)": (2, 3, 8),
    "Conv2d(3, 4, 3)": (2, 3, 8, 8), "Conv2d(3, 4, 3, padding=1, stride=2, bias=False)": (2, 3, 8, 8),
    "Conv3d(3, 4, 3)": (2, 3, 4, 4, 4), "ConvTranspose2d(3, 4, 3)": (2, 3, 8, 8), "BatchNorm1d(5)": (4, 5),
    "BatchNorm2d(3)": (2, 3, 8, 8), "LayerNorm(5)": (4, 5), "LayerNorm(8)": (2, 3, 8), "GroupNorm(3, 6)": (2, 6, 4, 4),
    "InstanceNorm2d(3)": (2, 3, 8, 8), "RMSNorm(5)": (4, 5), "Dropout()": (4, 5), "Dropout2d()": (2, 3, 8, 8),
    "ReLU(inplace=True)": (4, 5), "MaxPool2d(2)": (2, 3, 8, 8), "AvgPool2d(2)": (2, 3, 8, 8), "AdaptiveAvgPool2d(1)": (2, 3, 8, 8),
    "Flatten()": (2, 3, 8, 8), "LSTM(5, 6)": (4, 2, 5), "GRU(5, 6)": (4, 2, 5), "RNN(5, 6)": (4, 2, 5),
    "LSTM(5, 6, batch_first=True, num_layers=2)": (2, 4, 5), "LSTMCell(5, 6)": (4, 5), "GRUCell(5, 6)": (4, 5),
    "TransformerEncoderLayer(8, 2, 16, batch_first=True)": (2, 3, 8), "TransformerDecoderLayer(8, 2, 16)": (3, 2, 8),
}  # fmt: skip


def layer(source: str, shape, dtype):
    made = eval("nn." + source, {"nn": nn}).to(dtype)
    for training in (True, False):
        made.train(training)
        x = _numbers(*shape, dtype=dtype).requires_grad_(True)
        y = made(x, x) if "Decoder" in source else made(x * 1 if "inplace" in source else x)
        y = (y[0] if isinstance(y, tuple) else y).mean()
        y.backward()


def optimizer(name: str, dtype):
    model = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3)).to(dtype)
    made = getattr(td.optim, name)
    for keywords in (
        {},
        {"weight_decay": 0.01},
        {"momentum": 0.9},
        {"momentum": 0.9, "weight_decay": 1e-4, "nesterov": True},
    ):
        try:
            steps = made(model.parameters(), lr=0.01, **keywords)
        except TypeError:
            continue
        for _ in range(2):
            loss = F.cross_entropy(model(_numbers(4, 5, dtype=dtype)), td.tensor([0, 1, 2, 1]))
            steps.zero_grad()
            loss.backward()
            _try(nn.utils.clip_grad_norm_, model.parameters(), 1.0)
            _try(steps.step)


def losses(dtype):
    scores, values = _numbers(4, 5, dtype=dtype), _numbers(4, 5, dtype=dtype)
    classes = td.tensor([0, 1, 2, 4])
    for name in dir(F):
        if name.endswith("_loss") or name in (
            "cross_entropy",
            "binary_cross_entropy",
            "binary_cross_entropy_with_logits",
        ):
            for args in ((scores, classes), (scores, values), (scores[:, 0], values[:, 0]), (scores, values, values)):
                _try(call, getattr(F, name), *args)
                for reduction in ("sum", "none"):
                    _try(getattr(F, name), *args, reduction=reduction)
    _try(call, F.cross_entropy, scores, classes, label_smoothing=0.1)
    _try(call, F.cross_entropy, scores, classes, ignore_index=-100, weight=values[0])
    _try(call, F.cross_entropy, _numbers(2, 5, 3, dtype=dtype), td.tensor([[0, 1, 2], [1, 3, 4]]))
    for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
        for keywords in ({}, {"align_corners": True}):
            for shape in ((2, 3, 8, 8), (1, 3, 8, 8), (1, 1, 4, 4)):
                _try(call, F.interpolate, _numbers(*shape, dtype=dtype), scale_factor=2, mode=mode, **keywords)
            _try(call, F.interpolate, _numbers(2, 3, 8, 8, dtype=dtype), size=(5, 7), mode=mode, **keywords)
    for mode in ("constant", "reflect", "replicate", "circular"):
        for shape, amount in (((2, 3, 8, 8), (1, 1, 1, 1)), ((2, 3, 8), (1, 1)), ((4, 5), (1, 2))):
            _try(call, F.pad, _numbers(*shape, dtype=dtype), amount, mode=mode)
    q = _numbers(2, 2, 3, 4, dtype=dtype)
    for keywords in ({}, {"is_causal": True}, {"dropout_p": 0.1}, {"attn_mask": td.ones((3, 3), dtype=td.bool)}):
        _try(call, F.scaled_dot_product_attention, q, q, q, **keywords)


def others(dtype):
    """What takes arguments of its own kind."""
    v, m, image = _numbers(4, dtype=dtype), _numbers(4, 5, dtype=dtype), _numbers(2, 6, 4, 4, dtype=dtype)
    classes, some = td.tensor([1, 0, 2, 1]), (m * 5).to(td.int64)
    single = _numbers(1, 1, 4, 4, dtype=dtype)  # sizes of 1 are written into kernels
    for f, *args in (
        (F.multilabel_margin_loss, m, some), (F.multilabel_margin_loss, v, classes), (F.multi_margin_loss, m, classes),
        (F.multi_margin_loss, v, classes[0]), (td.mvlgamma, v + 2, 2), (td.mvlgamma, m + 2, 3), (td.addr, m, v, m[0]),
        (td.addr, m[:, :4], v, v), (F.group_norm, image, 2), (F.group_norm, image, 3), (F.group_norm, image[0, :, 0], 2),
        (td.einsum, "ij,jk->ik", m.T, m),
        (td.einsum, "ij,ij->i", m, m), (td.einsum, "bij,bjk->bik", image[0], image[0]), (td.bmm, image[0], image[0]),
        (td.addmm, m[:, :4], m[:, :4], m[:, :4]), (td.baddbmm, image[0], image[0], image[0]), (td.cross, m[:, :3], m[:, :3]),
        (td.index_add, m, 0, classes, m), (td.index_fill, m, 0, classes, 0.5), (td.scatter, m, 1, some[:, :2], m[:, :2]),
        (td.scatter_add, m, 1, some[:, :2], m[:, :2]), (td.renorm, m, 2, 0, 1.0), (F.embedding, classes, m),
        (F.layer_norm, m, (5,)), (F.grid_sample, image, _numbers(2, 3, 3, 2, dtype=dtype)), (F.one_hot, classes),
        (F.conv1d, m[None], m[None, :, :3]), (td.where, v > 0.5, v, 0), (td.where, m > 0.5, m, 0.0), (td.where, v > 0.5, 1.0, v),
        (td.multinomial, v, 2), (td.multinomial, m, 2), (td.histogramdd, m[:, :2], [3, 3]), (td.histogramdd, m[:, :3], 4),
        *((f, single) for f in (F.instance_norm, F.relu, F.softmax)), (F.pad, single, (1, 1)), (F.pad, single, (1, 1, 1, 1)),
        (F.conv2d, single, single[..., :3, :3]), (F.max_pool2d, single, 2), (F.avg_pool2d, single, 2), (F.unfold, single, 2),
        (F.scaled_dot_product_attention, single, single, single),
    ):  # fmt: skip
        _try(call, f, *args)


def initialisation(dtype):
    for name in dir(nn.init):
        if name.endswith("_") and not name.startswith("_"):
            for shape in ((6, 5), (4, 3, 3, 3), (5,)):
                _try(getattr(nn.init, name), td.zeros(shape, dtype=dtype))


def _try(function, *args, **keywords):
    try:
        return function(*args, **keywords)
    except Exception:
        return None


def documented() -> dict[str, str]:
    """The docstrings with examples."""
    found = {}
    for prefix, functions in spaces().items():
        found |= {prefix + name: f.__doc__ for name, f in functions.items()}
    for name in dir(td.Tensor):
        if not name.startswith("_"):
            found["Tensor." + name] = getattr(getattr(td.Tensor, name), "__doc__", None)
    for module in ("nn", "optim", "distributions"):
        for name, thing in vars(importlib.import_module("tandem." + module)).items():
            if isinstance(thing, type):
                found[f"{module}.{name}"] = thing.__doc__
    texts = {text: name for name, text in reversed(found.items()) if text and ">>>" in text}  # one per text
    return {name: text for text, name in reversed(texts.items())}


def cases() -> list[tuple]:
    """(name, function without arguments) of everything; the first ones are the most wanted."""
    made = []
    for dtype in FLOATS:
        made += [(f"example of {n} {dtype}", functools.partial(run_example, t, dtype)) for n, t in documented().items()]
    for dtype in (*FLOATS, *INTEGERS, td.bool, *COMPLEX, *HALVES):
        for f in (operators, indexing, conversions, creation):
            made.append((f"{f.__name__} {dtype}", functools.partial(f, dtype)))
        seen = set()
        for prefix, functions in spaces().items():
            if dtype is not td.float32 and prefix in ("F.", "random."):
                continue
            for name, function in functions.items():
                if id(function) in seen or (dtype not in FLOATS and ("loss" in name or "norm_" in name)):
                    continue
                if (dtype in HALVES or dtype is td.int32) and name not in COMMON:
                    continue
                seen.add(id(function))
                made.append((f"{prefix}{name} {dtype}", functools.partial(by_kind, name, function, dtype)))
    for dtype in FLOATS:
        made += [(f"{f.__name__} {dtype}", functools.partial(f, dtype)) for f in (losses, others, initialisation)]
        if dtype is not td.float32:
            continue
        made += [
            (f"{source} {dtype}", functools.partial(layer, source, shape, dtype)) for source, shape in LAYERS.items()
        ]
        names = [n for n, t in vars(td.optim).items() if isinstance(t, type) and n != "Optimizer"]
        made += [(f"{name} {dtype}", functools.partial(optimizer, name, dtype)) for name in names]
    return made
