"""One framework in one process: takes requests as JSON lines, times statements, answers as JSON lines.

worker.py ADAPTER THREADS        serve requests until the input ends
"""

import gc
import importlib
import json
import os
import pathlib
import statistics
import sys
from time import perf_counter

SAMPLE = 2e-3  # a sample repeats its statement until it takes about this long, so that the clock does not matter


def _indent(text: str, by: str) -> str:
    return "".join(by + line + "\n" for line in text.strip().splitlines())


def compile_case(names: dict, setup: str, statement: str, returns: str = "run"):
    """The setup's variables become closure variables: the statement pays for no look-up in a dictionary."""
    source = (
        f"def prepare():\n{_indent(setup, '    ')}"
        f"    def run(count):\n        start = now()\n        for _ in range(count):\n{_indent(statement, ' ' * 12)}"
        f"        return now() - start\n    return {returns}\n"
    )
    scope = {**names, "now": perf_counter}
    exec(compile(source, "<case>", "exec"), scope)
    return scope["prepare"]()


def measure(run, budget: float) -> dict:
    """Least and median seconds of one execution, from samples that take about `budget` seconds together."""
    count = 1
    while (took := run(count)) < SAMPLE and count < 10**6:
        count = min(count * 10, max(count + 1, int(count * SAMPLE / max(took, 1e-7)) + 1))
    samples = []
    end = perf_counter() + budget
    while len(samples) < 3 or perf_counter() < end:
        samples.append(run(count) / count)
    return {"best": min(samples), "median": statistics.median(samples), "samples": len(samples)}


def measure_new_shapes(make, call, shapes: int = 40) -> dict:
    """What the first call on a new shape costs over the second, once the operator itself is known."""
    for i in range(5):
        call(*make(i))
        call(*make(i))
    extra = []
    for i in range(5, 5 + shapes):
        arguments = make(i)
        start = perf_counter()
        call(*arguments)
        first = perf_counter()
        call(*arguments)
        extra.append((first - start) - (perf_counter() - first))
    return {"median": statistics.median(extra), "worst": max(extra)}


class Worker:
    def __init__(self, adapter: str, threads: int):
        sys.path.insert(0, str(pathlib.Path(__file__).parent))
        self.api = importlib.import_module(f"adapters.{adapter}_api")
        self.api.set_threads(threads)
        self.names = vars(self.api)
        self.ready: dict[str, object] = {}

    def hello(self):
        return {"version": self.api.version}

    def time(self, name, setup, statement, budget):
        if name not in self.ready:
            self.ready.clear()  # one case at a time: large tensors of the last one must not weigh on this one
            self.ready[name] = compile_case(self.names, setup, statement)
            self.ready[name](2)
        return measure(self.ready[name], budget)

    def new_shape(self, setup, statement):
        make = compile_case(self.names, setup, "pass", returns="make")
        return measure_new_shapes(make, eval(statement, self.names))

    def first_use(self, setup, statement):
        return {"best": compile_case(self.names, setup, statement)(1)}

    def serve(self, requests, answers):
        for line in requests:
            request = json.loads(line)
            gc.disable()
            try:
                answer = getattr(self, request.pop("do"))(**request)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            gc.enable()
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints goes to the error stream, out of the answers' way
    Worker(sys.argv[1], int(sys.argv[2])).serve(sys.stdin, answers)
