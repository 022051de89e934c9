"""Calls every operator of the installed PyTorch here too, and compares.

    python tools/compare_torch.py                     all operators; a summary, and what differs
    python tools/compare_torch.py cumsum nn.functional.pad --samples 30 --verbose

Operators, sample calls and calls that must be refused are those of PyTorch's own tests (torch.testing._internal, `op_db`), for all
dtypes; names of parameters and defaults come from its schemas. A call is equal if value, dtype, shape and gradients are. Every
sample is called as it is; some are called again as a method, in place, by keywords, with every default written out, and with out=.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import traceback
import types
import warnings

import numpy
import torch
from torch.testing._internal.common_methods_invocations import op_db

import tandem as td
import tandem.torch as ours

# Names of other libraries' and of PyTorch's private routines; those that exist in its tests only.
NOT_PUBLIC = ("jiterator", "torch.", "_")
RANDOM = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "uniform", "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
    "new_empty_strided", "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "pca_lowrank", "svd_lowrank", "resize_", "resize_as_",
}  # fmt: skip
# Factors are unique up to signs and order; what is made of them is compared by other tests.
NOT_UNIQUE = {
    "eig", "linalg.eig", "linalg.eigh", "linalg.svd", "svd", "linalg.eigvals", "qr", "linalg.qr", "geqrf", "linalg.lstsq",
    "linalg.ldl_factor", "linalg.ldl_factor_ex", "mode", "argsort", "as_strided",
}  # fmt: skip
WITH_TIES = {"kthvalue", "sort", "topk"}  # (values, indices): the indices of equal elements may be in any order
TOLERANCE = {"float64": 1e-6, "complex128": 1e-6, "float32": 2e-3, "complex64": 2e-3, "float16": 3e-2, "bfloat16": 1e-1}


# -- PyTorch's objects as ours, and back


class NotHere(Exception):
    """Something that only PyTorch has: a layout, a dtype."""


def dtype_here(dtype):
    name = str(dtype).removeprefix("torch.")
    found = getattr(td, name, None)
    if not isinstance(found, td.dtype):
        raise NotHere(name)
    return found


def here(value):
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            raise NotHere(str(value.layout))
        dtype_here(value.dtype)
        if value.storage_offset():
            raise NotHere("memory before its first element")
        plain = value.detach().resolve_conj().resolve_neg()
        made = td.from_dlpack(plain.clone() if plain.ndim == 0 or 0 in plain.stride() else plain)
        made = made.clone() if made.numel() else td.empty(tuple(plain.shape), dtype=made.dtype)
        return made.requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype):
        return dtype_here(value)
    if isinstance(value, torch.nn.Module):
        return getattr(td.nn, type(value).__name__)()
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, (torch.memory_format, torch.layout)):
        found = getattr(ours, str(value).removeprefix("torch."), None)
        if found is None:
            raise NotHere(str(value))
        return found
    if isinstance(value, torch.Generator):
        return td.Generator().manual_seed(value.initial_seed())
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(here(v) for v in value)
    if isinstance(value, (tuple, list)):
        return type(value)(here(v) for v in value)
    if isinstance(value, dict):
        return {k: here(v) for k, v in value.items()}
    return value


def numbers(x):
    if isinstance(x, torch.Tensor):
        x = x.detach().resolve_conj().resolve_neg()
        x = x.to_dense() if x.layout is not torch.strided else x
        return (x.double() if x.dtype is torch.bfloat16 else x).numpy()
    x = x.detach()
    return (x.to(td.float64) if x.dtype is td.bfloat16 else x).numpy()


def difference(a, b, what: str, values: bool = True) -> str | None:
    """How b, ours, differs from a, PyTorch's; None if it does not."""
    if isinstance(a, (tuple, list)):
        if not isinstance(b, (tuple, list)) or len(a) != len(b):
            return f"{what}: {type(b).__name__} for {len(a)} results"
        found = (difference(x, y, f"{what}[{i}]", values) for i, (x, y) in enumerate(zip(a, b, strict=True)))
        return next((d for d in found if d), None)
    if not isinstance(a, torch.Tensor):
        if isinstance(a, torch.dtype):
            return None if str(a).removeprefix("torch.") == str(b) else f"{what}: {b} for {a}"
        same = a == b or (isinstance(a, (float, complex)) and numpy.allclose(a, b, 2e-3, 1e-4, equal_nan=True))
        return None if same or (a is None and b is None) else f"{what}: {b!r} for {a!r}"
    if not isinstance(b, td.Tensor):
        return f"{what}: {type(b).__name__} for a tensor"
    if tuple(a.shape) != tuple(b.shape):
        return f"{what}: shape {tuple(b.shape)} for {tuple(a.shape)}"
    name = str(a.dtype).removeprefix("torch.")
    if str(b.dtype) != name:
        return f"{what}: {b.dtype} for {name}"
    if not values:
        return None
    x, y = numbers(a), numbers(b)
    if x.size and x.dtype.kind != y.dtype.kind:
        return f"{what}: {y.dtype} for {x.dtype}"
    tolerance = TOLERANCE.get(name, 0)
    finite = x[numpy.isfinite(x)] if x.dtype.kind in "fc" else x
    scale = max(1.0, float(numpy.abs(finite).max())) if tolerance and finite.size else 1.0
    if (
        numpy.allclose(y, x, tolerance, tolerance * min(scale, 1e3) / 10, equal_nan=True)
        if tolerance
        else (x == y).all()
    ):
        return None
    return f"{what}: values {numpy.ravel(y)[:4]} for {numpy.ravel(x)[:4]}"


# -- which of our functions an operator is


def path(name: str, space):
    thing = space
    try:
        for part in name.split("."):
            thing = getattr(thing, part)
    except (AttributeError, ImportError):
        return None
    return thing if callable(thing) else None


def find(name: str, space=ours):
    """What a name of op_db is in a namespace: a function by its path or a method, as it is in PyTorch."""
    if path(name, torch) is not None and not isinstance(path(name, torch), torch.dtype):
        return path(name, space)
    found = getattr(space.Tensor, name, None) or getattr(space.Tensor, name + "_", None)
    return (lambda x: getattr(x, name)) if found is not None and not callable(found) else found


def mine_of(op):
    """Ours for what PyTorch's tests call: the function of this name, or what calls it with other arguments, calling ours."""
    if not is_adapted(op):
        return find(op.name)
    made = types.FunctionType(
        op.op.__code__, {**op.op.__globals__, "torch": ours}, op.name, op.op.__defaults__, op.op.__closure__
    )
    made.__kwdefaults__ = op.op.__kwdefaults__
    return made


def is_adapted(op) -> bool:
    return isinstance(op.op, types.FunctionType) and op.op.__module__.startswith("torch.testing.")


def is_public(name: str) -> bool:
    return not name.startswith(NOT_PUBLIC) and find(name, torch) is not None


def schemas(name: str) -> list:
    return torch._C._jit_get_schemas_for_operator("aten::" + name.replace(".", "_").removeprefix("nn_functional_"))


# -- calls


class Outcome:
    def __init__(self):
        self.equal, self.total, self.problems = 0, 0, []

    def note(self, form: str, problem: str | None):
        self.total += 1
        if problem is None:
            self.equal += 1
        else:
            self.problems.append(f"{form}: {problem}")


def leaves(tree, kind):
    if isinstance(tree, kind):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for t in tree:
            yield from leaves(t, kind)
    elif isinstance(tree, dict):
        yield from leaves(list(tree.values()), kind)


def gradients(results, inputs, space, kind):
    """Of a fixed weighting of all differentiable results, by all inputs that want one."""
    total = None
    for number, r in enumerate(leaves(results, kind)):
        if not r.requires_grad:
            continue
        flat = space.view_as_real(r).reshape(-1) if r.is_complex() else r.reshape(-1)
        weights = space.arange(flat.numel(), dtype=flat.dtype) % 3 + (number + 1)
        part = (space.where(space.isfinite(flat), flat, space.zeros_like(flat)) * weights).sum()
        total = part if total is None else total + part
    wanted = [t for t in inputs if t.requires_grad]
    if total is None or not wanted:
        return None
    return space.autograd.grad(total, wanted, allow_unused=True)


def run(function, args, kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def compare_call(theirs, mine, args, kwargs, values: bool = True, grads: bool = True) -> str | None:
    """The problem with a call that PyTorch makes, or None. NotHere if it cannot be made here."""
    my_args, my_kwargs = here(list(args)), here(dict(kwargs))
    expected = run(theirs, args, kwargs)
    try:
        got = run(mine, my_args, my_kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    if values == "first":
        expected, got = expected[0], got[0]
    problem = difference(expected, got, "result", bool(values))
    if problem or not grads or not values:
        return problem
    inputs = list(leaves([list(args), dict(kwargs)], torch.Tensor))
    my_inputs = list(leaves([my_args, my_kwargs], td.Tensor))
    try:
        expected = run(gradients, (expected, inputs, torch, torch.Tensor), {})
    except (RuntimeError, NotImplementedError):
        return None
    if expected is None:
        return None
    try:
        got = run(gradients, (got, my_inputs, ours, td.Tensor), {})
    except Exception as error:
        return f"gradient: {type(error).__name__}: {str(error).splitlines()[0][:160]}"
    if got is None:  # zeros, which nothing is done for here
        zero = all(g is None or not g.numel() or g.abs().sum().item() == 0 for g in expected)
        return None if zero else "gradient: none"
    for i, (a, b) in enumerate(zip(expected, got, strict=True)):
        if a is None or b is None:
            if (a is None) != (b is None) and (a if b is None else b).abs().sum().item() != 0:
                return f"gradient[{i}]: {'missing' if b is None else 'where there is none'}"
            continue
        if problem := difference(a, b, f"gradient[{i}]"):
            return problem
    return None


def forms(name: str, args: tuple, kwargs: dict):
    """(what, args, kwargs) of the same call by keywords, and with each default written out."""
    for schema in schemas(name):
        parameters = list(schema.arguments)
        if any(a.is_out for a in parameters) or len(parameters) < len(args):
            continue
        names = [a.name for a in parameters]
        if any(k not in names for k in kwargs):
            continue
        first, rest = args[:1], dict(zip(names[1:], args[1:], strict=False))
        rest = {"input" if k == "self" else k: v for k, v in rest.items()}
        yield "by keywords", first, {**rest, **kwargs}
        if args:
            yield "input=", (), {("input" if names[0] == "self" else names[0]): args[0], **rest, **kwargs}
        for a in parameters[len(args) :]:
            if a.has_default_value() and a.name not in kwargs and a.name not in ("layout", "pin_memory"):
                yield f"{a.name}=", args, {**kwargs, a.name: a.default_value}


def pick(samples: list, count: int) -> list:
    """`count` of the samples: one of each set of keywords and number of arguments first."""
    kinds = {}
    for s in samples:
        kinds.setdefault((len(s.args), tuple(sorted(s.kwargs))), s)
    chosen = list(kinds.values())[:count]
    rest = [s for s in samples if all(s is not c for c in chosen)]
    step = max(len(rest) // max(count - len(chosen), 1), 1)
    return chosen + rest[::step][: count - len(chosen)]


def compare_operator(op, count: int, all_forms: bool = True) -> Outcome:
    outcome = Outcome()
    mine, name = mine_of(op), op.name
    usual = "first" if name in WITH_TIES else name not in RANDOM and name not in NOT_UNIQUE
    for dtype in sorted(op.supported_dtypes("cpu"), key=str):
        main = dtype is torch.float32
        differentiable = dtype in (torch.float32, torch.float64, torch.complex64) and op.supports_autograd
        try:
            samples = list(op.sample_inputs("cpu", dtype, requires_grad=differentiable))
        except Exception:
            continue
        for sample in pick(samples, count if main else max(count // 4, 1)):
            values = False if drops_out(op, sample) else usual
            check(outcome, str(dtype), op, mine, (sample.input, *sample.args), sample.kwargs, values)
            if main and all_forms:
                check_forms(outcome, op, mine, (sample.input, *sample.args), sample.kwargs, values)
    return outcome


def drops_out(op, sample) -> bool:
    """Whether a call zeroes elements at random."""
    if op.name == "nn.functional.multi_head_attention_forward":
        return sample.kwargs.get("training", True) and sample.args[9] > 0
    return sample.kwargs.get("dropout_p", 0) > 0


def check(outcome, form, op, mine, args, kwargs, values, theirs=None):
    try:
        problem = compare_call(theirs or op.op, mine, args, kwargs, values)
    except NotHere:
        return
    except Exception:
        return
    outcome.note(f"{form} {describe(args, kwargs)}", problem)


def check_forms(outcome, op, mine, args, kwargs, values):
    if is_adapted(op):
        return
    for what, a, k in forms(op.name, args, kwargs):
        check(outcome, what, op, mine, a, k, values)
    if isinstance(args[0], torch.Tensor):
        if (method := getattr(torch.Tensor, op.name, None)) is not None:
            check(outcome, "method", op, getattr(td.Tensor, op.name, None), args, kwargs, values, method)
        if (method := getattr(torch.Tensor, f"{op.name}_", None)) is not None:
            mine_ = on_copy(getattr(td.Tensor, f"{op.name}_", None))
            check(outcome, "in place", op, mine_, args, kwargs, values, on_copy(method))
    if op.supports_out and "out" not in kwargs:
        args, kwargs = without_history(list(args)), without_history(dict(kwargs))
        check(outcome, "out=", op, into_out(mine, td), args, kwargs, values, into_out(op.op, torch))


def on_copy(method):
    """A method that writes in place, on a copy: the tensor itself is compared with again."""

    def call(x, *args, **kwargs):
        written = x.clone()
        method(written, *args, **kwargs)
        return written

    return call


def without_history(tree):
    """Tensors detached: out= takes no part in gradients."""
    if isinstance(tree, torch.Tensor):
        return tree.detach()
    if isinstance(tree, dict):
        return {k: without_history(v) for k, v in tree.items()}
    return type(tree)(map(without_history, tree)) if type(tree) in (list, tuple) else tree


def as_ours(tree):
    return tuple(map(as_ours, tree)) if isinstance(tree, (tuple, list)) else here(tree)


def into_out(function, space):
    """function with out=, which is given memory of the right kind; what that holds afterwards."""

    def call(*args, **kwargs):
        shown = function(*args, **kwargs)
        out = tuple(map(space.empty_like, shown)) if isinstance(shown, (tuple, list)) else space.empty_like(shown)
        function(*args, out=out, **kwargs)
        if space is torch and difference(shown, as_ours(out), "out"):
            raise NotHere("an out= that PyTorch leaves unwritten")
        return out

    return call


def describe(args, kwargs) -> str:
    def text(v):
        if isinstance(v, torch.Tensor):
            return f"{str(v.dtype).removeprefix('torch.')}{list(v.shape)}"
        if isinstance(v, (tuple, list)):
            return f"[{', '.join(map(text, v))}]"
        return repr(v)

    return f"({', '.join([*map(text, args), *(f'{k}={text(v)}' for k, v in kwargs.items())])})"[:160]


def shares_memory(args, kwargs) -> bool:
    places = [t.untyped_storage().data_ptr() for t in leaves([list(args), dict(kwargs)], torch.Tensor) if t.numel()]
    return len(set(places)) < len(places)


def compare_errors(op) -> tuple[int, int, list]:
    """(refused, all, those that were not) of the calls that PyTorch refuses."""
    if op.error_inputs_func is None:
        return 0, 0, []
    refused = total = 0
    missed = []
    mine = mine_of(op)
    for bad in op.error_inputs("cpu"):
        args, kwargs = (bad.sample_input.input, *bad.sample_input.args), bad.sample_input.kwargs
        if shares_memory(args, kwargs):  # an out= that overlaps an operand: refused there, computed rightly here
            continue
        try:
            my_args, my_kwargs = here(list(args)), here(dict(kwargs))
        except (NotHere, Exception):
            continue
        try:
            run(op.op, args, kwargs)
            continue  # only its tests' way of calling it refuses this
        except Exception as error:
            kind = type(error)
        total += 1
        try:
            run(mine, my_args, my_kwargs)
            missed.append(f"{describe(args, kwargs)} not refused: {bad.error_regex[:80]}")
        except kind:
            refused += 1
        except Exception as error:
            missed.append(f"{describe(args, kwargs)} refused by {type(error).__name__}, not {kind.__name__}")
    return refused, total, missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--samples", type=int, default=8, help="calls of each operator in float32; a quarter of them in other dtypes"
    )
    parser.add_argument("--verbose", action="store_true", help="every problem, not the first two of an operator")
    parser.add_argument("--json", help="write all problems there")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th operator, from the i-th")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.part.split("/"))
    names = sorted({op.name for op in op_db if is_public(op.name)})
    missing = [n for n in names if find(n) is None]
    print(f"names: {len(names) - len(missing)} of {len(names)}; missing: {' '.join(missing)}")
    equal = total = refused = bad = 0
    report = collections.defaultdict(list)
    for number, op in enumerate(op_db):
        if number % parts != part or op.name not in names or op.name in missing:
            continue
        if arguments.names and op.name not in arguments.names:
            continue
        try:
            outcome = compare_operator(op, arguments.samples)
            good, all_bad, missed = compare_errors(op)
        except Exception:
            traceback.print_exc()
            continue
        equal, total = equal + outcome.equal, total + outcome.total
        refused, bad = refused + good, bad + all_bad
        report[op.name] += outcome.problems + missed
        shown = (outcome.problems + missed) if arguments.verbose else outcome.problems[:2] + missed[:1]
        if shown:
            print(
                f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''}: {outcome.equal}/{outcome.total}"
            )
            print("".join(f"    {line}\n" for line in shown), end="", flush=True)
    print(f"calls equal: {equal} of {total} ({100 * equal / max(total, 1):.1f} %)")
    print(f"bad calls refused: {refused} of {bad} ({100 * refused / max(bad, 1):.1f} %)")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
