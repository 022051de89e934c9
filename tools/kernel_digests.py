"""Digests of the code that programs become, to show that a refactoring changes none of it.

    python tools/kernel_digests.py > before; ...; python tools/kernel_digests.py > after; diff before after
    python tools/kernel_digests.py --cuda            the same for a CUDA device: on a stand-in, where there is none
    python tools/kernel_digests.py resnet --text     everything that is behind the digest of a program

A line per program: training steps of models, examples of the documentation, layers, operators. A digest covers all steps in order:
the source of each kernel (LLVM IR for two instruction sets, CUDA C), the routine and the arguments of each library call. A stand-in
computes nothing: there the few programs whose sizes depend on values (unique, bincount) differ from run to run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]


def texts_of(step) -> list[str]:
    """What a step of a schedule does, as text; steps of other schedules inside of it were seen when those were made."""
    from tandem.codegen.cuda.kernel import CudaKernel, TextKernel
    from tandem.codegen.cuda.render import source
    from tandem.codegen.levels import LEVELS
    from tandem.codegen.llvm.render import render
    from tandem.codegen.schedule import kernels_in

    texts = [type(step).__name__]
    for name in ("routine", "ints", "floats", "extent", "keeps"):
        texts.append(f"{name} {getattr(step, name, None)}")
    for name in ("buffers", "inputs", "outputs"):
        texts += [f"{name} {_memory(b)}" for b in getattr(step, name, ())]
    for kernel in kernels_in(step):
        if isinstance(kernel, (CudaKernel, TextKernel)):
            texts.append(source(kernel))
        else:
            levels = [LEVELS[name] for name in ("x86-64-v3", "x86-64-v4")]
            texts += [render(kernel, level.vector_bytes, level.flags) for level in levels]
    return texts


def _memory(buffer) -> str:
    where = f"{buffer.kind} {buffer.position} {buffer.dtype} {buffer.shape} {buffer.strides} {buffer.offset} {buffer.on_host}"
    return where if buffer.base is None else f"{where} of {_memory(buffer.base)}"


def programs() -> dict:
    """{name: function without arguments}"""
    import prebuild_calls

    import tandem as td
    from tests.models import small

    def training(make):
        def run():
            td.manual_seed(0)
            model, loss = make()
            model.to(td.get_default_device())  # buffers too
            optimizer = td.optim.AdamW(model.parameters(), 1e-3)

            @td.compile
            def step():
                optimizer.zero_grad()
                value = loss()
                value.backward()
                optimizer.step()
                return value

            step()

        return run

    def wide():  # large enough for what small sizes are not worth: epilogues of products, operands overwritten
        model = td.models.GPT2(2000, 128, 2, 4, 64, dropout=0.1)
        return small.language(model, small.whole(11, 8, 64), lambda t: model(t)[..., :11])

    def perceptron():
        layers = [td.nn.Linear(640, 640), td.nn.GELU(), td.nn.Linear(640, 640), td.nn.ReLU(), td.nn.Linear(640, 4)]
        return small.classifier(td.nn.Sequential(*layers), small.images(256, 8, 10).reshape(256, 640))

    made = [*small.SMALL, wide, perceptron]
    found = {f.__name__: training(f) for f in made}
    for name, run in prebuild_calls.cases():
        if ("float32" in name and "example of" in name) or name.startswith(("operators", "nn.")):
            found[name] = run
    return found


def main(arguments):
    import tandem as td
    from tandem.codegen import schedule
    from tandem.switches import cache_dir

    shutil.rmtree(Path(cache_dir()) / "programs", ignore_errors=True)  # these would be found, and not lowered
    seen: list = []
    make = schedule.Schedule.__init__

    def watch(self, steps, *args):
        seen.append(steps)
        make(self, steps, *args)

    schedule.Schedule.__init__ = watch
    if arguments.cuda:
        td.set_default_device("cuda")
    for name, run in programs().items():
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        seen.clear()
        try:
            run()
        except Exception as error:  # what a function refuses, or a stand-in cannot do, is part of what it does
            seen.append([f"{type(error).__name__}: {error}"])
        lines = [t for steps in seen for s in steps for t in ([s] if isinstance(s, str) else texts_of(s))]
        if arguments.text:
            print(f"== {name}", *lines, sep="\n")
        else:
            digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=10).hexdigest()
            print(f"{digest} {sum(map(len, seen)):5} steps  {name}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs whose names hold one of these; otherwise all")
    parser.add_argument("--cuda", action="store_true", help="for a CUDA device")
    parser.add_argument("--text", action="store_true", help="print what the digests are of")
    given = parser.parse_args()
    if given.cuda and "TANDEM_CUDA_DRIVER" not in os.environ:
        from tests.cuda_stand_in import environment

        os.execve(sys.executable, [sys.executable, *sys.argv], environment())
    warnings.simplefilter("ignore")
    main(given)
