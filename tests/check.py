"""The operator checker: one call says everything a test needs to say about an operator.

    check_op(td.softplus, reference=lambda x: np.logaddexp(x, 0), shapes=[(3, 4), (), (0,)])

Values are compared with the NumPy reference on every listed shape, dtype and memory layout; gradients with finite differences in
float64, first and second order. The first case also runs inside td.compile and in a session, forward and backward, under vmap
and jvp, and, for a sample of the operators, under td.autobatch (for all of them with CHECK_ONLY=autobatch).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import types
import zlib

import numpy as np

import tandem as td

CHECKED: set[str] = set()  # names of operator functions that a check has exercised (tests/test_coverage.py)

TOLERANCE = {
    "float16": (2e-2, 2e-3), "bfloat16": (5e-2, 1e-2), "float32": (2e-5, 2e-6), "float64": (1e-10, 1e-12),
    "complex64": (2e-5, 5e-6), "complex128": (1e-10, 1e-12),
}  # fmt: skip


def sample(rng, shape, dtype, low=-2.0, high=2.0):
    """A NumPy array of random elements."""
    dtype = td.dtypes.as_dtype(dtype)
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        low, high = int(np.ceil(max(low, 0) if dtype.kind == "uint" else low)), int(np.floor(high))
        return np.asarray(rng.integers(low, high + 1, shape)).astype(dtype.numpy)
    if dtype.is_complex:
        return np.asarray(rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype.numpy)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype.numpy)


def layouts(array, device="cpu"):
    """The same elements in several memory layouts: contiguous, reversed axes, every second element, offset, read backwards."""
    yield "contiguous", td.tensor(array, device=device)
    if array.ndim >= 2:
        turned = td.tensor(np.ascontiguousarray(array.T), device=device)
        yield "transposed", td.permute(turned, tuple(range(array.ndim))[::-1])
        order = (0, *range(2, array.ndim), 1)
        back = np.argsort(order)
        yield (
            "channels_last",
            td.tensor(np.ascontiguousarray(array.transpose(order)), device=device).permute(tuple(int(i) for i in back)),
        )
    if array.ndim >= 1:
        wide = np.repeat(array, 2, axis=-1)
        yield "strided", td.tensor(wide, device=device)[..., ::2]
        if device == "cpu":
            yield "backwards", td.from_numpy(np.ascontiguousarray(array[..., ::-1])[..., ::-1])


def assert_close(actual, expected, dtype=None, rtol=None, atol=None, message=""):
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected), message
        for a, e in zip(actual, expected, strict=True):
            assert_close(a, e, dtype, rtol, atol, message)
        return
    expected = np.asarray(expected)
    assert tuple(actual.shape) == expected.shape, f"{message}: shape {actual.shape}, expected {expected.shape}"
    name = dtype or actual.dtype.name
    r, a = TOLERANCE.get(name, (0, 0))
    a, r = a if atol is None else atol, r if rtol is None else rtol
    got = actual.detach().numpy()
    kind = np.complex128 if actual.dtype.is_complex else np.float64 if actual.dtype.is_inexact else None
    np.testing.assert_allclose(
        got.astype(kind) if kind else got,
        expected.astype(kind) if kind else expected,
        rtol=r,
        atol=a,
        equal_nan=True,
        err_msg=message,
    )


def check_op(
    op,
    reference,
    shapes=((3, 4), (), (0,), (5,), (2, 3, 4)),
    dtypes=("float32",),
    low=-2.0,
    high=2.0,
    grad=True,
    second=True,
    names=None,
    args=(),
    kwargs=None,
    inputs=None,
    rtol=None,
    atol=None,
    out_dtype=None,
    test_layouts=True,
    deferred=True,
    transforms=True,
    seed=0,
):
    """Checks `op(*tensors, *args, **kwargs)` against `reference(*arrays)`.

    deferred whether it can be part of a deferred graph: not if it writes into views; "sizes" if it must know the sizes first
    transforms whether vmap and jvp apply: not to what looks at values or memory, nor to what is not deferred
    shapes   each a shape (one operand) or a tuple of shapes (several)
    inputs   instead of shapes: list of tuples of NumPy arrays; integer arrays take no part in gradients
    low, high range of the random elements; keep away from where the function is not smooth, if grad is on
    grad, second  check first and second derivatives by finite differences in float64
    """
    kwargs = kwargs or {}
    CHECKED.update(names or [getattr(op, "__name__", "")])
    rng = np.random.default_rng(seed)
    cases = []
    if inputs is not None:
        cases = [tuple(np.asarray(a) for a in case) for case in inputs]
    else:
        for shape, dtype in itertools.product(shapes, dtypes):
            several = bool(shape) and isinstance(shape[0], (tuple, list))
            cases.append(tuple(sample(rng, s, dtype, low, high) for s in (shape if several else (shape,))))

    def run(*tensors):
        return op(*tensors, *args, **kwargs)

    if os.environ.get("CHECK_ONLY") == "nvrtc":  # make cuda-check: on a device that computes nothing
        for case in cases:
            compile_for_cuda(run, case, grad)
        return
    if os.environ.get("CHECK_ONLY") == "sharded":  # tools/sharded_check.py
        from tests.check_sharded import check_sharded

        for case in sorted(cases, key=lambda c: -max((a.ndim for a in c), default=0))[:1]:
            check_sharded(run, case, grad)
        return
    autobatch = os.environ.get("CHECK_ONLY") == "autobatch"  # tests/compiling/test_autobatch.py: all of them
    if cases and transforms and (autobatch or zlib.crc32(str(getattr(op, "__name__", "")).encode()) % 16 == 0):
        check_autobatch(run, cases[0], grad)
    if autobatch:
        return
    if td.cuda.is_available():
        for i, case in enumerate(cases):
            check_cuda(run, case, grad, test_layouts, rtol, atol, compiled=i == 0)
        if os.environ.get("CHECK_ONLY") == "cuda":  # make gpu-test: what does not need the device is checked elsewhere
            return
    for case in cases:
        wide = tuple(a.astype(np.float32) if a.dtype.name in ("bfloat16", "float16") else a for a in case)
        expected = reference(*wide)
        where = f"{getattr(op, '__name__', op)} on {[(a.shape, a.dtype.name) for a in case]}"
        variants = [[("contiguous", td.tensor(a))] for a in case]
        if test_layouts:
            variants = [list(layouts(a)) for a in case]
        for i in range(max(len(v) for v in variants)):
            chosen = [v[i % len(v)] for v in variants]
            actual = run(*(t for _, t in chosen))
            label = f"{where}, layouts {[name for name, _ in chosen]}"
            tolerance = out_dtype or next((a.dtype.name for a in case if a.dtype.name in TOLERANCE), None)
            assert_close(actual, expected, tolerance if _first(actual).dtype.is_inexact else None, rtol, atol, label)
            if out_dtype is not None:
                assert _first(actual).dtype.name == out_dtype, label
    if cases:
        check_compiled(run, cases[0], grad)
        if deferred:
            check_deferred(run, cases[0], grad, unknown=deferred is True)
        if transforms and deferred:
            check_transforms(run, cases[0], grad)
    if grad:
        for case in cases:
            arrays = tuple(
                a.astype(np.complex128) if a.dtype.kind == "c" else a.astype(np.float64) if _is_inexact(a) else a
                for a in case
            )
            if arrays and max((a.size for a in arrays), default=0) <= 200:
                check_gradients(run, arrays, second=second)


def check_compiled(fn, case, grad):
    """The same values, and the same gradients, inside td.compile as outside."""

    def both(*tensors):
        result = fn(*tensors)
        parts = result if isinstance(result, (tuple, list)) else (result,)
        floats = [p for p in parts if isinstance(p, td.Tensor) and p.requires_grad]
        if floats:
            td.autograd.backward(floats, [td.ones_like(p) for p in floats])
        return result, [t.grad for t in tensors]

    def tensors():
        return [td.tensor(a, requires_grad=grad and _is_inexact(a)) for a in case]

    td.manual_seed(0)
    expected, expected_grads = both(*tensors())
    td.manual_seed(0)
    actual, actual_grads = td.compile(both)(*tensors())
    expected, actual = ((x if isinstance(x, (tuple, list)) else (x,)) for x in (expected, actual))
    for a, e in zip((*actual, *actual_grads), (*expected, *expected_grads), strict=True):
        assert (a is None) == (e is None)
        if isinstance(e, td.Tensor):
            assert a.dtype is e.dtype
            assert_close(a, e.detach().numpy(), message="compiled")


def check_autobatch(fn, case, grad):
    """The same values, gradients and random numbers for several examples under td.autobatch as one after the other."""

    def both(scope):
        td.manual_seed(0)
        given = [[td.tensor(a, requires_grad=grad and _is_inexact(a)) for a in case] for _ in range(3)]
        results = []
        with scope:
            for tensors in given:  # of every two operands one is a result itself, and so a row of a block
                made = fn(*(t.clone() if k % 2 == 0 else t for k, t in enumerate(tensors)))
                results += [
                    p for p in (made if isinstance(made, (tuple, list)) else (made,)) if isinstance(p, td.Tensor)
                ]
        floats = [p for p in results if p.requires_grad]
        if floats:
            td.autograd.backward(floats, [td.ones_like(p) for p in floats])
        return results, [t.grad for tensors in given for t in tensors]

    expected, expected_grads = both(contextlib.nullcontext())
    actual, actual_grads = both(td.autobatch())
    for a, e in zip((*actual, *actual_grads), (*expected, *expected_grads), strict=True):
        assert (a is None) == (e is None), "autobatch"
        if e is not None:
            assert a.dtype is e.dtype
            loose = {"rtol": 1e-4, "atol": 1e-5} if a.dtype.name in ("float32", "complex64") else {}
            assert_close(a, e.detach().numpy(), message="autobatch", **loose)


def check_transforms(fn, case, grad):
    """vmap against a loop over examples, and the Jacobian forward against backward: <u, J v> = <J^T u, v>."""

    def parts_of(result):
        return [p for p in (result if isinstance(result, (tuple, list)) else (result,)) if isinstance(p, td.Tensor)]

    given = [td.tensor(a) for a in case]
    if not given or any(t.size == 0 for t in given):
        return
    td.manual_seed(0)
    before = td.default_generator.get_state()
    one = parts_of(fn(*given))
    if before != td.default_generator.get_state() or not one:
        return  # random numbers: examples get their own
    # The second example is the first one with its elements in another order, so that indices stay in range.
    other = [td.flip(t, tuple(range(t.ndim))) if t.ndim else t for t in given]
    try:
        second = parts_of(fn(*other))
    except (td.TandemError, ValueError, ArithmeticError):
        other, second = given, one
    if [tuple(p.shape) for p in one] == [tuple(p.shape) for p in second]:
        batch = [td.stack([a, b]) for a, b in zip(given, other, strict=True)]
        made = td.vmap(lambda *tensors: parts_of(fn(*tensors)))(*batch)
        for m, a, b in zip(made, one, second, strict=True):
            assert m.dtype is a.dtype
            loose = {"rtol": 1e-4, "atol": 1e-5} if m.dtype.name in ("float32", "complex64") else {}
            assert_close(m, np.stack([a.detach().numpy(), b.detach().numpy()]), message="vmap", **loose)
    arguments = [i for i, a in enumerate(case) if _is_inexact(a)]
    if not grad or not arguments or len(one) != 1 or not one[0].dtype.is_inexact:
        return
    rng = np.random.default_rng(5)
    exact = [
        a.astype(np.complex128) if a.dtype.kind == "c" else a.astype(np.float64) if _is_inexact(a) else a for a in case
    ]

    def of_floats(*floats):
        full = [td.tensor(a) for a in exact]
        for i, x in zip(arguments, floats, strict=True):
            full[i] = x
        return fn(*full)

    floats = [td.tensor(exact[i]) for i in arguments]
    v = [td.tensor(sample(rng, t.shape, t.dtype)) for t in floats]
    value, pushed = td.jvp(of_floats, tuple(floats), tuple(v))
    u = td.tensor(sample(rng, value.shape, value.dtype))
    _, pull = td.vjp(of_floats, *floats)
    pulled = pull(u)

    def product(a, b):
        return float(np.sum(np.real(np.conj(a.detach().numpy()) * b.detach().numpy())))

    forward, backward = product(u, pushed), sum(product(g, t) for g, t in zip(pulled, v, strict=True))
    np.testing.assert_allclose(forward, backward, rtol=1e-6, atol=1e-8, err_msg="jvp against vjp")


def check_cuda(fn, case, grad, test_layouts=True, rtol=None, atol=None, compiled=True):
    """The same values and gradients on a CUDA device as on the CPU, eagerly and compiled."""
    there_fn = _moved(fn)

    def both(*tensors):
        on_device = any(t.is_cuda for t in tensors)
        with td.device("cuda" if on_device else "cpu"):  # tensors that fn makes
            result = (there_fn if on_device else fn)(*tensors)
        parts = result if isinstance(result, (tuple, list)) else (result,)
        floats = [p for p in parts if isinstance(p, td.Tensor) and p.requires_grad]
        if floats:
            td.autograd.backward(floats, [td.ones_like(p) for p in floats])
        return [p for p in parts if isinstance(p, td.Tensor)] + [t.grad for t in tensors]

    def tensors(device):
        """Operands, one layout after the other."""
        made = [list(layouts(a, device)) if test_layouts else [("", td.tensor(a, device=device))] for a in case]
        made = [[x for x in v if x[0] != "backwards"] for v in made]  # made on NumPy's memory
        for i in range(max((len(v) for v in made), default=1)):
            chosen = [v[i % len(v)] for v in made]
            for (_, t), a in zip(chosen, case, strict=True):
                t.requires_grad = bool(grad) and (a.dtype.kind == "f" or a.dtype.name == "bfloat16")
            yield "/".join(name for name, _ in chosen), [t for _, t in chosen]

    for (_, here), (label, there) in zip(tensors("cpu"), tensors("cuda"), strict=True):
        td.manual_seed(0)
        for t in here:
            t.grad = None
        expected = both(*here)
        runs = [("cuda", both)]
        if compiled:
            runs.append(("cuda, compiled", td.compile(both)))
            compiled = False
        for name, run in runs:
            td.manual_seed(0)
            for t in there:
                t.grad = None
            for a, e in zip(run(*there), expected, strict=True):
                assert (a is None) == (e is None), f"{name} {label}"
                if e is not None:
                    assert a.dtype is e.dtype
                    assert a.device == "cuda", f"{name} {label}: a result is on {a.device}"
                    close = {} if e.dtype.name != "float32" else {"rtol": rtol or 2e-4, "atol": atol or 2e-5}
                    assert_close(a.detach().cpu(), e.detach().numpy(), message=f"{name} {label}", **close)


def compile_for_cuda(fn, case, grad):
    """Runs fn and its gradients on the stand-in for a device (tests/cuda_stand_in), where NVRTC compiles every kernel that they
    need, and nothing is computed."""
    there = _moved(fn)
    tensors = [td.tensor(a, device="cuda") for a in case]
    for t, a in zip(tensors, case, strict=True):
        t.requires_grad = bool(grad) and (a.dtype.kind == "f" or a.dtype.name == "bfloat16")
    try:
        with td.device("cuda"):
            result = there(*tensors)
            parts = result if isinstance(result, (tuple, list)) else (result,)
            floats = [p for p in parts if isinstance(p, td.Tensor) and p.requires_grad]
            if floats:
                td.autograd.backward(floats, [td.ones_like(p) for p in floats])
    except (td.InternalError, td.DeviceError, td.UnsupportedError):
        raise
    except (td.TandemError, ValueError, ArithmeticError):
        pass  # values that nobody computed may be refused


def _moved(x):
    """x with the tensors that it closes over on the device."""
    if isinstance(x, td.Tensor):
        return x.cuda()
    if isinstance(x, (list, tuple)) and type(x) in (list, tuple):
        return type(x)(_moved(v) for v in x)
    if isinstance(x, dict):
        return {k: _moved(v) for k, v in x.items()}
    if isinstance(x, types.FunctionType):
        cells = tuple(types.CellType(_moved(c.cell_contents)) for c in x.__closure__ or ())
        made = types.FunctionType(x.__code__, x.__globals__, x.__name__, _moved(x.__defaults__), cells or None)
        made.__kwdefaults__ = x.__kwdefaults__
        return made
    return x


def check_deferred(fn, case, grad, unknown=True):
    """The same values, and the same gradients, in a graph run by a session; sizes other than 0 and 1 are unknown to it."""

    def tensors():
        return [td.tensor(a, requires_grad=grad and _is_inexact(a)) for a in case]

    def parts_of(result):
        return list(result) if isinstance(result, (tuple, list)) else [result]

    given = tensors()
    with td.Graph() as graph:
        symbolic = [td.placeholder(t.dtype, [None if unknown and n > 1 else n for n in t.shape]) for t in given]
        made = parts_of(fn(*symbolic))
    floats = [p for p in made if p.dtype.is_inexact] if grad else []
    wanted = [s for s, t in zip(symbolic, given, strict=True) if t.requires_grad]
    gradients = td.gradients(floats, wanted) if floats and wanted else []
    text = graph.to_json()
    assert td.Graph.from_json(text).to_json() == text
    td.manual_seed(0)
    actual, actual_grads = td.Session(graph).run([made, gradients], dict(zip(symbolic, given, strict=True)))
    td.manual_seed(0)
    expected = parts_of(fn(*given))
    recorded = [p for p in expected if p.requires_grad]
    if recorded and gradients:
        td.autograd.backward(recorded, [td.ones_like(p) for p in recorded])
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype is e.dtype
        assert_close(a, e.detach().numpy(), message="deferred")
    for a, t in zip(actual_grads, [t for t in given if t.requires_grad], strict=False):
        if t.grad is None:
            assert a is None or not a.numpy().any()
        else:
            assert_close(a, t.grad.numpy(), message="deferred gradient")


def _first(x):
    return x[0] if isinstance(x, (tuple, list)) else x


def check_gradients(fn, arrays, second=True, eps=1e-6, rtol=1e-4, atol=1e-6):
    """Gradients of fn at float64 arrays against central differences; with `second`, also of the gradient itself."""
    rng = np.random.default_rng(1)
    wanted = [i for i, a in enumerate(arrays) if a.dtype in (np.float64, np.complex128)]
    if not wanted:
        return
    weights = {}

    def scalar(*tensors):
        """A fixed random combination of all floating outputs."""
        result = fn(*tensors)
        total = None
        for k, part in enumerate(result if isinstance(result, (tuple, list)) else (result,)):
            if not part.dtype.is_inexact:
                continue
            if k not in weights:
                weights[k] = td.tensor(_normal(rng, tuple(part.shape), part.dtype.is_complex))
            term = _real_sum(part, weights[k])
            total = term if total is None else total + term
        return total

    def gradient(values, create_graph):
        tensors = [td.tensor(v, requires_grad=i in wanted) for i, v in enumerate(values)]
        out = scalar(*tensors)
        chosen = [tensors[i] for i in wanted]
        if not out.requires_grad:
            return chosen, [td.zeros_like(t) for t in chosen]
        grads = td.autograd.grad(out, chosen, create_graph=create_graph, allow_unused=True)
        return chosen, [td.zeros_like(t) if g is None else g for g, t in zip(grads, chosen, strict=True)]

    _, analytic = gradient(arrays, False)
    with td.no_grad():
        numeric = _differences(lambda *v: float(scalar(*[td.tensor(a) for a in v])), arrays, wanted, eps)
    for i, a, n in zip(wanted, analytic, numeric, strict=True):
        assert a.shape == n.shape
        np.testing.assert_allclose(
            a.detach().numpy(), n, rtol=rtol, atol=atol, err_msg=f"first derivative by argument {i}"
        )
    if not second:
        return

    mix = [_normal(rng, arrays[i].shape, arrays[i].dtype.kind == "c") for i in wanted]

    def mixed(*values):
        _, grads = gradient(values, False)
        return sum(float((g.detach().numpy() * m).sum().real) for g, m in zip(grads, mix, strict=True))

    chosen, grads = gradient(arrays, True)
    total = None
    for g, m in zip(grads, mix, strict=True):
        if g.requires_grad:
            term = _real_sum(g, td.tensor(m))
            total = term if total is None else total + term
    if total is None:
        second_grads = [td.zeros_like(t) for t in chosen]
    else:
        found = td.autograd.grad(total, chosen, allow_unused=True)
        second_grads = [td.zeros_like(t) if g is None else g for g, t in zip(found, chosen, strict=True)]
    numeric = _differences(mixed, arrays, wanted, 1e-5)
    for i, a, n in zip(wanted, second_grads, numeric, strict=True):
        np.testing.assert_allclose(
            a.detach().numpy(), n, rtol=1e-3, atol=1e-4, err_msg=f"second derivative by argument {i}"
        )


def _is_inexact(array) -> bool:
    return array.dtype.kind in "fc" or array.dtype.name == "bfloat16"


def _normal(rng, shape, is_complex: bool):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape) if is_complex else rng.normal(size=shape)


def _real_sum(x, weights):
    """A real number that depends on all parts of x."""
    total = (x * weights).sum()
    return td.real(total) if total.dtype.is_complex else total


def _differences(fn, arrays, wanted, eps):
    """Derivatives of a real function; by complex numbers, that by the real part plus i times that by the imaginary one."""
    result = []
    for i in wanted:
        out = np.zeros(arrays[i].shape, arrays[i].dtype)
        directions = (1, 1j) if arrays[i].dtype.kind == "c" else (1,)
        for position in np.ndindex(*arrays[i].shape):
            for direction in directions:
                ends = []
                for sign in (1, -1):
                    moved = [a.copy() for a in arrays]
                    moved[i][position] += sign * eps * direction
                    ends.append(fn(*moved))
                out[position] += direction * (ends[0] - ends[1]) / (2 * eps)
        result.append(out)
    return result
