"""Changes programs that were kept on disk at random, with checksums that are right, and loads what comes of it. A program of its
own, as it may crash:

    python -m tests.program.hostile SEED COUNT

Prints how many programs were made again and how many were taken.
"""

from __future__ import annotations

import collections
import copy
import marshal
import os
import random
import sys
import tempfile

import tandem as td
from tandem.machine import disk_cache
from tandem.program import stored

NUMBERS = [-2, -1, 0, 1, 2, 3, 50, 2**20, 2**31, 2**31 - 1, 2**62, 2**63, -(2**63), 10**30, 0.5, float("nan")]
NAMES = ["run", "accepts", "keep", "backward", "__init__", "__class__", "__reduce__", "value", "slot", "kernel", "epilogue",
         "part", "writes", "parts", "on_host", "region", "origin"]  # fmt: skip
THINGS = [
    None,
    True,
    "x",
    "relu",
    [],
    [1, 2],
    [2**40],
    (),
    ("plan", []),
    ("kernel", "a", "b"),
    ("kernel",),
    ("cuda", 1),
    {},
    b"x",
]


def programs():
    """(request, facts, what its writer gave, calls) of what some functions were compiled to."""
    found = []
    load = stored.load

    def noting(request):
        found.append(request)
        return load(request)

    stored.load = noting
    loop = lambda x: td.scan(lambda h, r: ((h + r).tanh(), h * 2), x[0], x)[1]
    for fn in (lambda x: (x @ x.mT + 1).softmax(-1).sum(0), lambda x: td.sort(x)[0] * 2 + x[1:2], loop):
        td.compile(fn)(td.rand(5, 5))
    stored.load = load
    contents = [
        (request, request.key and disk_cache.read(stored._path(request.key), stored.FORMAT)) for request in found
    ]
    return [(request, *marshal.loads(content)) for request, content in contents if content]


def changed(facts, packed, generator: random.Random):
    packed = copy.deepcopy(packed)
    for _ in range(generator.choice([1, 1, 2, 4])):
        at = generator.randrange(len(packed))
        if packed[at] in THINGS:
            continue  # changed before
        name, args = packed[at][0], list(packed[at][1])
        kind = generator.random()
        if kind < 0.15:
            name = generator.choice(NAMES)
        elif kind < 0.25:
            del packed[at]
            continue
        elif kind < 0.3:
            packed[at] = generator.choice(THINGS)
            continue
        elif kind < 0.4:
            args.append(generator.choice(THINGS))
        elif args:
            i = generator.randrange(len(args))
            new = generator.choice([generator.choice(NUMBERS), generator.choice(THINGS)])
            if isinstance(args[i], list) and args[i] and generator.random() < 0.7:
                args[i][generator.randrange(len(args[i]))] = generator.choice(NUMBERS)
            else:
                args[i] = new
        packed[at] = (name, tuple(args))
    return facts if generator.random() < 0.9 else generator.choice([None, {}, [], 3]), packed


def main(seed: int, count: int):
    generator = random.Random(seed)
    outcomes = collections.Counter()
    kept = programs()
    assert len(kept) >= 3
    for _ in range(count):
        request, facts, written, packed = generator.choice(kept)
        facts, packed = changed(facts, packed, generator)
        disk_cache.write(stored._path(request.key), stored.FORMAT, marshal.dumps((facts, written, packed)))
        outcomes["again" if stored.load(request) is None else "taken"] += 1
    print(outcomes["again"], outcomes["taken"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, td.switches(CACHE_DIR=os.path.join(folder, "cache"), CACHE=1):
        main(int(sys.argv[1]), int(sys.argv[2]))
