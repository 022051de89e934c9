"""The zoo: models of many families in plain PyTorch style (zoo/), one text for both libraries; prints ratios and their means.

    python benchmarks/zoo.py [--models unet,llama] [--kind train,infer] [--modes eager,compiled]
                             [--torch-modes eager,channels_last,compile] [--rounds 5] [--seconds 0.3]
                             [--device cuda] [--scale 8] [--threads 2] [--together 3] [--results FILE]
                             [--torch-python P] [--cpu-time]
    python benchmarks/zoo.py --report FILE
    python benchmarks/zoo.py --check [--models ...]
    python benchmarks/zoo.py --count [--models ...]
    python benchmarks/zoo.py --equal [--models ...]
    python benchmarks/zoo.py --kernels [--models ...]

Every model runs in processes of its own, one a library and mode, which take turns; a time is the best one of all turns. Images
lie channels-last in modes of their own (channels_last, compiled_last, compile_last), and PyTorch's better one counts. On devices
both train with bfloat16 autocast and fused Adam. --results keeps what was measured in a file that several runs may fill, a few
models or modes each; --report prints its table. --together: the processes of so many models begin at once, which is quicker on
many cores, but says nothing of first steps. --cpu-time: seconds of the processor, not of the clock,
for a machine that others use; with --threads 1, as threads that wait count. --torch-python: an interpreter that has PyTorch,
where this one has not. --check: both libraries from the same weights and inputs, without dropout: losses and gradients
compared, eager and compiled. --equal: ours
alone, compiled against eager, in training mode: losses, gradients and buffers. --count: kernels and library calls of a training
step, eager and compiled. --kernels: those of compiled training steps that are slow by their text (zoo_kernels.py).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from zoo_report import header, keep, report, row, summary

HERE = pathlib.Path(__file__).parent
PYTHON = {"tandem": sys.executable, "torch": sys.executable}  # interpreters that have each library
FAMILIES = "convnets", "dense", "generative", "language", "sequences", "structured", "vision_transformers"


def load(library: str) -> dict:
    """{name: function that makes a case}, with torch being either library."""
    if library == "tandem":
        import tandem.torch

        tandem.torch.install()
    sys.path.insert(0, str(HERE / "zoo"))
    import case

    for family in FAMILIES:
        __import__(family)
    return case.ZOO


# -- one library in one process


class Worker:
    def __init__(self, library: str, mode: str, model: str, kind: str, device: str):
        make = load(library)[model]
        import torch

        self.torch, self.device, self.kind = torch, device, kind
        torch.manual_seed(0)
        self.case = case = make()
        self.model, self.inputs = case.model, case.inputs
        self.model.train(kind == "train")
        if device != "cpu":
            self.model.to(device)
            self.inputs = tuple(x.to(device) for x in self.inputs)
        if mode in ("channels_last", "compiled_last", "compile_last"):
            self.model.to(memory_format=torch.channels_last)
            self.inputs = tuple(
                x.to(memory_format=torch.channels_last) if x.ndim == 4 and x.is_floating_point() else x
                for x in self.inputs
            )
        if kind == "train":
            real = not any(p.is_complex() for p in self.model.parameters())  # torch's fused Adam takes no others
            fused = {"fused": True} if device != "cpu" or (library == "torch" and real) else {}
            optimizers = case.optimizers or (lambda m: [torch.optim.Adam(m.parameters(), lr=1e-4, **fused)])
            self.optimizers = optimizers(self.model)
            step = self._own_step if case.step else self._step
        else:
            step = self._infer
        compiles = mode in ("compiled", "compiled_last", "compile", "compile_last", "reduce-overhead")
        options = {"mode": "reduce-overhead"} if mode == "reduce-overhead" else {}
        self.step = torch.compile(step, **options) if compiles else step

    def _cast(self):
        if self.device == "cpu" or not self.case.mixed:
            return contextlib.nullcontext()
        return self.torch.autocast("cuda", self.torch.bfloat16)

    def _step(self, *inputs):
        self.optimizers[0].zero_grad()
        with self._cast():
            loss = self.case.loss(self.model, *inputs)
        loss.backward()
        self.optimizers[0].step()
        return loss

    def _own_step(self, *inputs):
        with self._cast():
            return self.case.step(self.model, self.optimizers, *inputs)

    def _infer(self, *inputs):
        with self.torch.no_grad(), self._cast():
            return self.case.forward(self.model, *inputs) if self.case.forward else self.model(inputs[0])

    def wait(self):
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def first(self) -> dict:
        start = time.perf_counter()
        result = self.step(*self.inputs)
        value = float(result) if self.kind == "train" else 0.0
        self.wait()
        cold = time.perf_counter() - start
        for _ in range(3):
            result = self.step(*self.inputs)
        self.wait()
        return {"cold": cold, "loss": value}

    def turn(self, seconds: float) -> float:
        best, begun = math.inf, time.perf_counter()
        many = 1 if self.device == "cpu" else 5
        clock = time.process_time if os.environ.get("ZOO_CLOCK") == "cpu" else time.perf_counter
        while time.perf_counter() - begun < seconds or best == math.inf:
            start = clock()
            for _ in range(many):
                result = self.step(*self.inputs)
            self.wait()
            if self.device == "cpu" and self.kind == "train":
                float(result)
            best = min(best, (clock() - start) / many)
        return best

    def peak(self) -> float:
        if self.device != "cpu":
            return self.torch.cuda.max_memory_allocated() / 2**20
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def serve(arguments: list[str]):
    library, mode, model, kind, device = arguments
    answer = lambda value: print(json.dumps(value), flush=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    worker = Worker(library, mode, model, kind, device)
    answer(worker.first())
    for line in sys.stdin:
        if line.strip() == "peak":
            answer(worker.peak() - (before if device == "cpu" else 0))
        else:
            answer(worker.turn(float(line)))


# -- the same weights in both


def check_worker(arguments: list[str]):
    """Losses and gradients of one library; weights and inputs are written by torch and read by tandem."""
    library, model, file = arguments
    make = load(library)[model]
    import numpy as np
    import torch

    torch.manual_seed(0)
    case = make()
    case.model.eval()
    names = [n for n, _ in case.model.named_parameters()]
    if library == "torch":
        arrays = {f"state {k}": v.numpy() for k, v in case.model.state_dict().items()}
        arrays |= {f"input {i}": x.numpy() for i, x in enumerate(case.inputs)}
        np.savez(file, **arrays)
        inputs = case.inputs
    else:
        with np.load(file) as kept:
            state = {k[6:]: torch.from_numpy(kept[k]) for k in kept.files if k.startswith("state ")}
            inputs = [torch.from_numpy(kept[f"input {i}"]) for i in range(len(case.inputs))]
        case.model.load_state_dict(state)

    def step(*inputs):
        case.model.zero_grad()
        loss = case.loss(case.model, *inputs)
        loss.backward()
        return loss

    found = {}
    for mode in ("eager",) if library == "torch" else ("eager", "compiled"):
        run = torch.compile(step) if mode == "compiled" else step
        loss = float(run(*inputs))
        grads = {n: p.grad for n, p in zip(names, case.model.parameters()) if p.grad is not None}
        found[mode] = {
            "loss": loss,
            "grads": {
                n: float(g.detach().double().norm() if not g.is_complex() else g.abs().norm()) for n, g in grads.items()
            },
        }
    print(json.dumps(found), flush=True)


def check(models: list[str]) -> int:
    wrong = 0
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            found = {}
            for library in ("torch", "tandem"):
                command = [PYTHON[library], __file__, "--check-worker", library, model, f"{folder}/kept.npz"]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    print(
                        f"{model:22} {library} failed: {done.stderr.strip().splitlines()[-1] if done.stderr else ''}",
                        flush=True,
                    )
                    wrong += 1
                    break
                found |= {f"{library} {k}": v for k, v in json.loads(done.stdout.splitlines()[-1]).items()}
            if len(found) == 3:
                wrong += not report_check(model, found)
    return wrong


def report_check(model: str, found: dict) -> bool:
    theirs, good = found["torch eager"], True
    for mode in ("tandem eager", "tandem compiled"):
        ours = found[mode]
        far = abs(ours["loss"] - theirs["loss"]) / max(abs(theirs["loss"]), 1e-6)
        names = set(theirs["grads"]) | set(ours["grads"])
        largest = max(theirs["grads"].values(), default=1.0)
        off = {n: abs(theirs["grads"].get(n, 0.0) - ours["grads"].get(n, 0.0)) for n in names}
        worst = max(off, key=off.get) if off else None
        bad = far > 1e-3 or (worst is not None and off[worst] > 5e-3 * largest)
        good = good and not bad
        if bad:
            losses = f"loss {ours['loss']:.6g}, torch's {theirs['loss']:.6g}"
            print(f"{model:22} {mode}: {losses}; gradient of {worst} off by {off.get(worst, 0):.3g}", flush=True)
    if good:
        print(f"{model:22} equal", flush=True)
    return good


def equal(models: list[str]) -> int:
    """How many models have other losses, gradients or buffers compiled than eagerly, in training, from the same state and seed."""
    cases = load("tandem")
    import torch

    wrong = 0
    for model in models:
        torch.manual_seed(0)
        case = cases[model]()
        case.model.train()
        before = {k: v.clone() for k, v in case.model.state_dict().items()}

        optimizers: list = []

        def step(*inputs, case=case, optimizers=optimizers):
            if case.loss is None:  # several losses and optimisers, as of a GAN
                return case.step(case.model, optimizers, *inputs)
            case.model.zero_grad()
            loss = case.loss(case.model, *inputs)
            loss.backward()
            return loss

        found = []
        for run in (step, torch.compile(step)):
            case.model.load_state_dict(before)
            optimizers[:] = case.optimizers(case.model) if case.optimizers else []
            torch.manual_seed(1)
            loss = float(run(*case.inputs))
            grads = {n: p.grad.clone() for n, p in case.model.named_parameters() if p.grad is not None}
            found.append((loss, grads, {k: v.clone() for k, v in case.model.state_dict().items()}))
        (loss, grads, state), (other, others, others_state) = found
        largest = max((float(g.abs().max()) for g in grads.values()), default=1.0)
        far = (
            {n: float((g - others[n]).abs().max()) / largest for n, g in grads.items()}
            if set(grads) == set(others)
            else {}
        )
        far |= {k: _far(v, others_state[k]) for k, v in state.items()}
        worst = max(far, key=far.get, default=None)
        good = (
            set(grads) == set(others) and abs(loss - other) <= 1e-4 * max(abs(loss), 1) and far.get(worst, 0.0) <= 1e-3
        )
        wrong += not good
        print(
            f"{model:22} {'equal' if good else f'DIFFERS: loss {loss:.6g}, compiled {other:.6g}; {worst} by {far.get(worst)}'}",
            flush=True,
        )
    return wrong


def _far(a, b) -> float:
    a, b = a.double() if not a.is_complex() else a, b.double() if not b.is_complex() else b
    return float((a - b).abs().max()) / max(float(a.abs().max()), 1e-6) if a.numel() else 0.0


# -- kernels


def count_worker(arguments: list[str]):
    """{mode: kernels and library calls} of a training step of ours, without the tiny ones of the optimiser."""
    import tandem

    found = {}
    for mode in ("eager", "compiled"):
        worker = Worker("tandem", mode, arguments[0], "train", "cpu")
        worker.first()
        with tandem.profile() as recorded:
            worker.step(*worker.inputs)
        found[mode] = sum(row.steps for row in recorded.rows("kernel") if " in adam" not in row.name)
    print(json.dumps(found), flush=True)


def count(models: list[str]) -> int:
    """How many models have more steps compiled than eager."""
    more = 0
    for model in models:
        done = subprocess.run([sys.executable, __file__, "--count-worker", model], capture_output=True, text=True)
        if done.returncode:
            print(f"{model:22} failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
            more += 1
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        more += found["compiled"] > found["eager"]
        print(f"{model:22} eager {found['eager']:6} compiled {found['compiled']:6}", flush=True)
    return more


def slow_kernels(models: list[str]) -> int:
    """How many kernels of compiled training steps are slow by their text."""
    from zoo_kernels import findings_of

    total = 0
    for model in models:
        worker = Worker("tandem", "compiled", model, "train", "cpu")
        worker.step(*worker.inputs)
        found = findings_of(worker.step)
        total += sum(found.values())
        print(f"{model:22} {sum(found.values()):4} {dict(found) or ''}", flush=True)
    return total


# -- turns


class Process:
    def __init__(self, library: str, mode: str, model: str, kind: str, device: str, threads: int):
        self.name = f"{library} {mode}"
        environment = os.environ | {f"{who}_NUM_THREADS": str(threads) for who in ("OMP", "MKL", "TANDEM")}
        self.errors = tempfile.TemporaryFile("w+")
        command = [PYTHON[library], __file__, "--worker", library, mode, model, kind, device]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment
        )
        self.best = math.inf
        self.first = None

    def begin(self) -> bool:
        """Whether it has made its first step."""
        self.first = self._answer()
        return self.first is not None

    def _answer(self):
        while line := self.process.stdout.readline():
            with contextlib.suppress(ValueError):
                return json.loads(line)
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        print(f"    {self.name}: {lines[-1] if lines else 'ended'}", flush=True)
        return None

    def ask(self, text: str):
        try:
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()
        except OSError:
            return None
        return self._answer()

    def turn(self, seconds: float):
        took = self.ask(str(seconds))
        self.best = min(self.best, took if took is not None else math.inf)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(models: list[str], kind: str, options):
    """(model, what was measured of it) of each."""
    wanted = [("tandem", m) for m in options.modes.split(",") if m]
    wanted += [("torch", m) for m in options.torch_modes.split(",") if m]
    processes: dict[str, list] = {model: [] for model in models}
    for model, which in itertools.product(models, wanted):
        processes[model].append(Process(*which, model, kind, options.device, options.threads))
        if not options.together:
            processes[model][-1].begin()
    if options.together:
        for process in itertools.chain(*processes.values()):
            process.begin()
    for model in models:
        yield model, take_turns(processes[model], options)


def take_turns(processes: list[Process], options) -> dict:
    alive = [p for p in processes if p.first is not None]
    for _ in range(options.rounds):
        for p in alive:
            p.turn(options.seconds)
    result = {p.name: {"ms": p.best * 1e3, "peak": p.ask("peak"), **p.first} for p in alive}
    for p in processes:
        p.close()
    return result


def run(options, models: list[str]):
    for kind in options.kind.split(","):
        rows = []
        print(header(kind))
        size = options.together or 1
        groups = [models[i : i + size] for i in range(0, len(models), size)]
        for model, result in itertools.chain.from_iterable(measure(group, kind, options) for group in groups):
            rows.append(result)
            print(row(model, result), flush=True)
            if options.results:
                keep(options.results, {f"{kind} {model}": result})
        print("\n".join(summary(rows)), flush=True)


def names() -> list[str]:
    """Of all models, without importing a library."""
    found = []
    for family in FAMILIES:
        lines = (HERE / "zoo" / f"{family}.py").read_text().splitlines()
        found += [b.split("(")[0].removeprefix("def ") for a, b in itertools.pairwise(lines) if a == "@zoo"]
    return found


def main():
    inner = {"--worker": serve, "--check-worker": check_worker, "--count-worker": count_worker}
    if len(sys.argv) > 1 and sys.argv[1] in inner:
        return inner[sys.argv[1]](sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="")
    parser.add_argument("--kind", default="train")
    parser.add_argument("--modes", default="eager,compiled")
    parser.add_argument("--torch-modes", default="eager")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--together", type=int, default=0)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--equal", action="store_true")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--results")
    parser.add_argument("--report")
    parser.add_argument("--torch-python", default=sys.executable)
    options = parser.parse_args()
    os.environ["ZOO_SCALE"] = str(options.scale)
    if options.cpu_time:
        os.environ["ZOO_CLOCK"] = "cpu"
    PYTHON["torch"] = options.torch_python
    models = [m for m in options.models.split(",") if m] or names()
    if options.check:
        return check(models)
    if options.count:
        return count(models)
    if options.equal:
        return equal(models)
    if options.kernels:
        return slow_kernels(models)
    if options.report:
        return report(options.report)
    return run(options, models)


if __name__ == "__main__":
    sys.exit(main())
