"""Random functions of tensors with free axes, exported: for few rows and for many they must give what eager calls give, or refuse.

A function is a few lines of Python, chosen from STEPS, with bounds and sizes that are computed from those of its argument. It is
exported as a saved model, and as an ONNX file where onnxruntime is there, and run with other sizes than those of its example.
"""

from __future__ import annotations

import contextlib
import linecache
import random
import re
import tempfile

import numpy as np

import tandem as td
from tandem.nn import functional as F

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

SIZES = (1, 2, 3, 5, 8, 17)
ARGUMENTS = [((6, 4), (0,)), ((6,), (0,)), ((4, 6), (1,)), ((6, 5), (0, 1)), ((2, 6, 3), (1,))]  # shape and free axes
COUNTS = ["n", "n - 1", "n // 2", "n // 3", "(n + 1) // 2", "n % 3", "min(n, 3)", "max(n - 2, 1)", "n + 1", "2 * n", "n - n // 3",
          "max(n // 4, 1)", "1", "2", "3", "abs(n - 4)", "-(-n // 4)"]  # fmt: skip
BOUNDS = [*COUNTS, "-(n // 3)", "-(n // 2)", "-(n - 1)", "-n", "-1", "-2", "1 - n % 2", "-max(n - 3, 1)"]

# {x}: the last value, {e}: a bound, {p}: a count, {a}: an axis; <one|of|these>
STEPS = [
    "{x}[{e}:]",
    "{x}[:{e}]",
    "{x}[{e}:{e}]",
    "{x}[{e}]",
    "{x}[::<2|3|{p}>]",
    "{x}[..., {e}:]",
    "{x}[..., :{e}]",
    "{x}[..., {e}:{e}]",
    "{x}[..., {e}]",
    "{x}[{e}:{e}:<2|3>]",
    "{x}.flip({a})",
    "{x}.narrow({a}, {p}, {p})",
    "{x}.select({a}, {e})",
    "{x}.chunk(<2|3|4|{p}>, {a})[<0|-1|1>]",
    "{x}.split({p}, {a})[<0|-1|1>]",
    "{x}.split([{p}, {x}.shape[{a}] - ({p})], {a})[<0|1>]",
    "td.tensor_split({x}, <2|3>, {a})[<0|-1>]",
    "td.tensor_split({x}, [{p}, {p}], {a})[<0|-1|1>]",
    "{x}.unfold({a}, <1|2|{p}>, <1|2|{p}>)",
    "{x}.roll({e}, {a})",
    "{x}.roll({e})",
    "{x}.flip(0)",
    "td.tile({x}, ({p},))",
    "{x}.repeat_interleave(<2|{p}>, {a})",
    "F.pad({x}, ({e}, {e}))",
    "F.pad({x}, (0, {p}), value=2.0)",
    "td.cat([{x}, td.zeros({p}, *{x}.shape[1:])])",
    "td.cat([{x}, {x}[{e}:]])",
    "td.cat([{x}[..., {e}:], {x}[..., :{e}]], -1)",
    "{x}.sum() + td.arange({p})",
    "{x}.sum() + td.arange({e}, {p})",
    "{x}.sum() * td.arange(0, {p}, <2|3|{p}>)",
    "{x}.sum() + td.arange({p}, {e}, -<1|2>)",
    "{x}.sum() + td.linspace(0, 1, {p})",
    "{x}.sum() + td.linspace({e}, 1, {p})",
    "{x}.sum() + td.linspace(0, 1, {p}, endpoint=False)",
    "{x}.sum() + td.logspace(0, 1, {p})",
    "{x}.sum() + td.eye({p}, {p})",
    "{x}.sum() * td.full(({p}, 2), {e})",
    "td.atleast_2d({x}).tril({e})",
    "td.atleast_2d({x}).triu({e})",
    "td.atleast_2d({x}).diagonal({e})",
    "{x}.reshape(-1)",
    "{x}.reshape({x}.numel() // {x}.shape[0], {x}.shape[0])",
    "{x}.reshape({p}, -1)",
    "{x}[:{x}.shape[0] // 2 * 2].reshape(2, -1)",
    "{x}.flatten()",
    "{x}[None]",
    "{x}.squeeze()",
    "{x}.squeeze({a})",
    "{x}.transpose(0, -1)",
    "{x}.expand({p}, *{x}.shape)",
    "td.index_select({x}, {a}, td.arange({p}))",
    "{x}[td.arange({p})]",
    "{x}[td.arange({p}) - 1]",
    "td.take({x}, td.arange({p}))",
    "{x}.topk({p}, {a})[0]",
    "{x}.sort({a})[0]",
    "{x}.argsort({a})",
    "{x}.kthvalue({p}, {a})[0]",
    "{x}.cumsum({a})",
    "{x}.cumprod({a})",
    "{x}.cummax({a})[0]",
    "td.diff({x}, n=<1|2>, dim={a})",
    "{x}.sum({a})",
    "{x}.mean({a}, keepdim=True)",
    "{x}.var({a})",
    "{x}.std()",
    "{x}.amax({a})",
    "{x}.max({a})[1]",
    "{x}.argmin({a})",
    "{x}.softmax({a})",
    "{x}.log_softmax({a})",
    "{x}.prod({a})",
    "{x}.logsumexp({a})",
    "{x} @ {x}.transpose(0, -1)",
    "td.outer({x}.flatten(), {x}.flatten())",
    "td.cdist(td.atleast_2d({x}), td.atleast_2d({x})[:2])",
    "td.isin({x}, {x}[:{p}])",
    "td.where(td.arange({x}.shape[-1]) < {e}, {x}, 0.0)",
    "{x}.masked_fill(td.arange({x}.shape[-1]) >= {e}, -1.0)",
    "F.one_hot({x}.argmax(-1), {x}.shape[-1])",
    "td.stack([{x}, {x} * 2], {a})",
    "td.stack(list({x}.unbind({a}))[:2])",
    "td.meshgrid({x}.flatten(), td.arange({p}), indexing='ij')[1]",
    "{x}.median({a})[0]",
    "td.quantile({x}, 0.3, {a})",
    "td.diag({x}.flatten())",
    "td.diag_embed({x}, {e})",
    "td.kron({x}, td.ones(2))",
    "td.tril_indices({p}, {p}) + {x}.sum()",
    "td.vander({x}.flatten(), {p})",
    "td.hann_window({p}) + {x}.sum()",
    "td.combinations({x}.flatten())",
    "td.searchsorted({x}.sort(-1)[0].contiguous(), {x})",
    "td.bucketize({x}, td.linspace(-1, 1, {p}))",
    "td.trapezoid({x})",
    "F.interpolate({x}.reshape(1, 1, -1), size={p})",
    "F.interpolate({x}.reshape(1, 1, -1), size={p}, mode='linear')",
    "F.interpolate({x}.reshape(1, 1, -1), scale_factor=2)",
    "F.avg_pool1d({x}.reshape(1, 1, -1), <2|{p}>)",
    "F.max_pool1d({x}.reshape(1, 1, -1), 2, <1|2|{p}>)",
    "F.adaptive_avg_pool1d({x}.reshape(1, 1, -1), <3|1|{p}>)",
    "F.adaptive_max_pool1d({x}.reshape(1, 1, -1), <3|1|{p}>)",
    "F.conv1d({x}.reshape(1, 1, -1), td.ones(1, 1, 3), padding=<1|{p}>)",
    "F.layer_norm({x}, ({x}.shape[-1],))",
    "F.pad({x}.reshape(1, 1, -1), ({p}, 1), mode='<reflect|replicate|circular>')",
    "F.unfold({x}.reshape(1, 1, 1, -1), (1, <2|{p}>))",
    "td.rot90(td.atleast_2d({x}), {e})",
    "td.movedim({x}, 0, -1)",
    "td.hstack([{x}, {x}])",
    "td.block_diag(td.atleast_2d({x}), td.ones(1, 2)) if {x}.ndim <= 2 else {x}",
    "td.einsum('i,j->ij', {x}.flatten(), td.arange({p}).float())",
    "{x}.scatter_add(-1, td.zeros(*{x}.shape, dtype=td.int64), {x})",
    "td.scatter(td.zeros_like({x}), 0, {x}.argsort(0), {x})",
    "td.gather({x}, -1, {x}.argsort(-1))",
    "td.bincount({x}.argsort(-1).flatten(), minlength={p})",
    "td.nn.functional.cosine_similarity({x}, {x} + 1, {a})",
    "{x}.unflatten({a}, (1, -1))",
    "{x}.renorm(2, 0, 1.0)",
    "td.logcumsumexp({x}, {a})",
    "{x}.index_fill(0, td.arange({p}), 1.0)",
    "td.nan_to_num({x} / (n - 1))",
    "{x} * (1 / n)",
    "{x} / max(n - 3, 1)",
    "{x} * (n % 2)",
    "{x} ** (n % 3)",
    "({x} + n) / (n + 1)",
    "td.count_nonzero({x}, {a})",
    "td.roll({x}, ({e}, {e}), (0, -1))",
    "td.swapaxes({x}, 0, -1)",
    "td.fliplr(td.atleast_2d({x}))",
    "td.cartesian_prod({x}.flatten(), td.arange({p}).float())",
    "td.cov(td.atleast_2d({x})) if {x}.ndim < 3 else {x}",
    "td.histc({x}, {p}, -3, 3)",
    "td.linalg.vector_norm({x}, dim={a})",
    "td.unravel_index(td.arange({p}), (2, {p}))[1] + {x}.sum()",
    "td.fft.rfft({x}).abs()",
    "td.fft.irfft(td.fft.rfft({x}), n={p})",
    "td.fft.fftshift({x}, -1)",
    "td.fft.fftfreq({p}) + {x}.sum()",
    "{x}.movedim(0, -1)[..., None]",
    "{x}.new_zeros({p}, 2) + 1",
    "{x}.as_strided(({p},), (1,))",
    "{x}.nansum({a})",
    "{x}.mode({a})[0]",
    "td.trace({x} @ {x}.transpose(0, -1)) if {x}.ndim == 2 else {x}",
    "td.select_scatter({x}, {x}.select(0, 0) * 0, 0, {e})",
    "td.slice_scatter({x}, {x}[:1] * 0 + 5, 0, {p}, {p} + 1)",
    "td.triu(td.ones(n, n), {e})",
    "F.scaled_dot_product_attention(*[{x}.reshape(1, 1, -1, 1)] * 3, is_causal=<True|False>)",
]
OF_TWO = ["{x} + y", "td.cat([{x}, y[:{e}]])", "{x}[..., :y.shape[0]]", "td.where({x} > 0, {x}, y.sum())",
          "F.pad({x}, (y.shape[0] - 2, 0))", "{x}[-y.shape[0]:]"]  # fmt: skip


def _written(r: random.Random, step: str, x: str, several: bool) -> str:
    names = ["n", f"{x}.shape[0]", f"{x}.shape[-1]", *(["m"] if several else [])]

    def one(match) -> str:
        if match[0] == "{x}":
            return x
        if match[0] == "{a}":
            return r.choice(["0", "-1"])
        return re.sub(r"\bn\b", r.choice(names), r.choice(BOUNDS if match[0] == "{e}" else COUNTS))

    step = re.sub(r"<([^<>]*)>", lambda m: r.choice(m[1].split("|")), step)
    return re.sub(r"\{[xaep]\}", one, step)


def program(seed: int) -> tuple[str, tuple, tuple, bool]:
    """The text of a function, the shape of its first argument with its free axes, and whether it has a second one."""
    r = random.Random(seed)
    shape, free = r.choice(ARGUMENTS)
    two = r.random() < 0.3
    lines = ["def fn(x, y):" if two else "def fn(x):", f"    n = x.shape[{free[0]}]"]
    if len(free) > 1:
        lines.append(f"    m = x.shape[{free[1]}]")
    x = "x"
    for k in range(r.randint(1, 3)):
        step = r.choice(OF_TWO if two and r.random() < 0.2 else STEPS)
        lines.append(f"    v{k} = ({_written(r, step, x, len(free) > 1)}).float(){r.choice(['', ' * 1.5 + 1'])}")
        x = f"v{k}"
    return "\n".join([*lines, f"    return {x}"]), shape, free, two


def _data(shape, seed: int) -> np.ndarray:
    count = int(np.prod(shape))  # no two alike
    return (np.random.default_rng(seed).permutation(count).reshape(shape) / max(count, 1) * 2 - 0.99).astype(np.float32)


def _arguments(shape, free, sizes, other: int | None) -> list[np.ndarray]:
    shape = list(shape)
    for axis, n in zip(free, sizes, strict=False):
        shape[axis] = n
    return [_data(shape, 1), *([] if other is None else [_data((other,), 2)])]


def _saved(fn, example, dynamic, folder):
    td.export.save(fn, example, f"{folder}/m", dynamic=dynamic)
    model = td.export.load(f"{folder}/m")
    return lambda arrays: model(*map(td.tensor, arrays)).numpy()


def _onnx(fn, example, dynamic, folder):
    td.onnx.save(fn, example, f"{folder}/m.onnx", dynamic=dynamic)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(f"{folder}/m.onnx", options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))[0]


def compare(seed: int):
    text, shape, free, two = program(seed)
    name = f"<exported {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {"td": td, "F": F}
    exec(compile(text, name, "exec"), scope)
    fn = scope["fn"]
    example = [td.tensor(a) for a in _arguments(shape, free, [shape[a] for a in free], 3 if two else None)]
    try:
        fn(*example)
    except Exception:  # a function that does not run
        return
    dynamic = {"x0": free, "x1": (0,)} if two else {"x": free}
    with tempfile.TemporaryDirectory() as folder:
        for way in (_saved, _onnx) if onnxruntime is not None else (_saved,):
            with contextlib.suppress(td.TandemError):  # it is refused, which is no wrong result
                _compare(
                    fn, way(fn, tuple(example), dynamic, folder), shape, free, two, f"{name}, {way.__name__}\n{text}"
                )


def _compare(fn, exported, shape, free, two: bool, what: str):
    for n in SIZES:
        for other in (1, 2, 5) if two else (None,):
            arrays = _arguments(shape, free, (n, 4), other)
            try:
                made = exported(arrays)
            except Exception:  # refused
                continue
            try:
                wanted = fn(*map(td.tensor, arrays)).numpy()
            except Exception:  # perhaps in what no result needs
                continue
            if made.shape != wanted.shape or not np.allclose(made, wanted, 1e-3, 1e-3, equal_nan=True):
                raise AssertionError(
                    f"eager {wanted.shape} {wanted}, exported {made.shape} {made}; n = {n}, {other}\n{what}"
                )
