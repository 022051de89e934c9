"""Changes ONNX models at random, and loads and runs what comes of it. A program of its own, as it may crash:

    python -m tests.onnx.damage SEED COUNT

Prints one JSON line: how many were refused, how many ran, and what ended in an error that is none of ours.
"""

from __future__ import annotations

import collections
import copy
import faulthandler
import json
import random
import sys
import traceback
import warnings

from onnx import numpy_helper

import tandem as td
from tandem.errors import InternalError, TandemError
from tests.onnx import backend
from tests.processes import limit_memory

NUMBERS = [-1, 0, 1, 2, 3, 7, -5, 1000, 2**20, 2**31, 2**40, 2**62, -(2**63), 2**63 - 1]
LIMIT = 8 << 30  # bytes of address space: what asks for more is refused, not served


def change(model, rng: random.Random):
    """One change to one place of the model."""
    graph = model.graph
    nodes = list(graph.node)
    node = rng.choice(nodes)
    kind = rng.randrange(9)
    if kind == 0 and node.attribute:
        change_attribute(rng.choice(node.attribute), rng)
    elif kind == 1 and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif kind == 2 and node.input:
        names = [n for other in nodes for n in (*other.input, *other.output)] + ["", "nothing"]
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif kind == 3 and node.input:
        del node.input[rng.randrange(len(node.input))]
    elif kind == 4:
        node.op_type = rng.choice([*(other.op_type for other in nodes), *SOME_OPERATORS])
    elif kind == 5 and graph.initializer:
        change_tensor(rng.choice(graph.initializer), rng)
    elif kind == 6:
        node.input.append(rng.choice([n for other in nodes for n in other.input] or ["x"]))
    elif kind == 7 and len(nodes) > 1:
        del graph.node[rng.randrange(len(nodes))]
    else:
        for opset in model.opset_import:
            opset.version = rng.choice([1, 6, 7, 9, 11, 13, 18, 23, 99])


def change_attribute(a, rng: random.Random):
    if a.type == a.INT:
        a.i = rng.choice(NUMBERS)
    elif a.type == a.FLOAT:
        a.f = rng.choice([0.0, -1.0, 1e38, float("nan"), float("inf")])
    elif a.type == a.INTS and a.ints:
        if rng.random() < 0.5:
            a.ints[rng.randrange(len(a.ints))] = rng.choice(NUMBERS)
        else:
            a.ints.append(rng.choice(NUMBERS))
    elif a.type == a.STRING:
        a.s = rng.choice([b"", b"SAME_UPPER", b"linear", b"\xff\xfe", b"ij,jk->ik"])
    elif a.type == a.TENSOR:
        change_tensor(a.t, rng)
    else:
        a.type = rng.choice([a.INT, a.FLOAT, a.STRING, a.INTS, a.TENSOR])


def change_tensor(t, rng: random.Random):
    kind = rng.randrange(4)
    if kind == 0 and t.dims:
        t.dims[rng.randrange(len(t.dims))] = rng.choice(NUMBERS)
    elif kind == 1:
        t.data_type = rng.randrange(30)
    elif kind == 2:
        t.raw_data = t.raw_data[: len(t.raw_data) // 2] if t.raw_data else b"\x01\x02\x03"
    else:
        array = numpy_helper.to_array(t)
        if array.dtype.kind in "iu" and array.size:
            array = array.copy()
            array.reshape(-1)[rng.randrange(array.size)] = rng.choice([-1, 0, 1, 5, 100, 127])
            t.CopyFrom(numpy_helper.from_array(array, t.name))


SOME_OPERATORS = ["Reshape", "Gather", "Concat", "Slice", "Conv", "MatMul", "Resize", "Pad", "TopK", "Loop", "Identity"]


def attempt(model, inputs) -> str:
    """What came of it: refused, ran, or the error that none of ours is."""
    try:
        loaded = td.onnx.load(model)
        with td.no_grad():
            loaded(*inputs)
    except InternalError:
        return traceback.format_exc(limit=-6)
    except (TandemError, MemoryError):
        return "refused"
    except Exception:
        return traceback.format_exc(limit=-6)
    return "ran"


def main(seed: int, count: int):
    faulthandler.enable()
    limit_memory(LIMIT)
    warnings.simplefilter("ignore")
    every = [c for c in backend.cases(("node", "simple")) if c.model is not None]
    results, odd = collections.Counter(), {}
    for number in range(seed, seed + count):
        rng = random.Random(number)
        case = rng.choice(every)
        model = copy.deepcopy(case.model)
        inputs = [backend._array(v) for v in case.data_sets[0][0]]
        for _ in range(rng.randint(1, 3)):
            change(model, rng)
        print(f"seed {number} {case.name}", file=sys.stderr, flush=True)
        outcome = attempt(model, inputs)
        if outcome in ("refused", "ran"):
            results[outcome] += 1
        else:
            results["odd"] += 1
            odd.setdefault(outcome.strip().splitlines()[-1][:120], f"seed {number} {case.name}\n{outcome}")
    print(json.dumps({**results, "errors": list(odd.values())}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
