"""Collectives of CUDA tensors by NCCL: checks that run on a device, and, as far as they need no kernels, on a stand-in.

    python -m tests.gpu.nccl_checks [name or engine ...]     runs them, and prints a line for each

Ranks are threads or processes that share one device, which NCCL 2.31 and later allows. Values are made and looked at on the CPU.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback

import numpy as np

import tandem as td
from tandem import distributed as dist

DTYPES = (
    td.float32, td.bfloat16, td.float16, td.float64, td.int64, td.int32, td.int8, td.uint8, td.complex64, td.bool, td.int16,
)  # fmt: skip
CHECKS: dict[str, tuple] = {}  # name: (function of a rank, needs kernels, engines and numbers of ranks)
SMALL = (("threads", 2), ("shared_memory", 2))
ALL = (*SMALL, ("shared_memory", 3))


def check(*, kernels: bool, on=ALL):
    def add(function):
        CHECKS[function.__name__] = function, kernels, on
        return function

    return add


def part(rank: int, shape, dtype=td.float32):
    """What a rank has, on the CPU: small integers, exact in every type."""
    numbers = (np.arange(int(np.prod(shape))).reshape(shape) * (rank + 1)) % 5 + rank % 2
    return td.tensor(numbers.astype(np.int64)).to(dtype)


def number(x):
    x = x.cpu()
    return x.to(td.complex128).numpy() if x.dtype.is_complex else x.to(td.float64).numpy()


def parts(shape, dtype):
    return [number(part(r, shape, dtype)) for r in range(dist.get_world_size())]


def same(expected, x, what=""):
    np.testing.assert_array_equal(expected, number(x), err_msg=str(what))


def here():
    return dist.get_rank(), dist.get_world_size()


@check(kernels=False)
def all_reduce_of_every_dtype():
    for dtype in DTYPES:
        x = part(dist.get_rank(), (3, 7), dtype).cuda()
        dist.all_reduce(x)
        total = sum(parts((3, 7), dtype))
        same(total > 0 if dtype is td.bool else total, x, dtype)


@check(kernels=False)
def reductions():
    rank, n = here()
    for op, reference in (("product", np.prod), ("max", np.max), ("min", np.min), ("avg", np.mean)):
        for dtype in (td.float32, td.int32) if op != "avg" else (td.float32, td.bfloat16):
            x = part(rank, (4, 2), dtype).cuda()
            dist.all_reduce(x, op)
            expected = reference(np.stack(parts((4, 2), dtype)), axis=0)
            np.testing.assert_allclose(expected, number(x), rtol=1e-2 if dtype is td.bfloat16 else 1e-6, err_msg=op)
    bits = td.tensor([1 << rank, 7]).cuda()
    dist.all_reduce(bits, "bor")
    assert bits.tolist() == [(1 << n) - 1, 7]
    nan = td.tensor([float("nan") if rank == 1 else 1.0, 2.0]).cuda()
    dist.all_reduce(nan, "max")
    assert np.isnan(nan.tolist()[0]) and nan.tolist()[1] == 2


@check(kernels=False)
def moves_of_every_dtype():
    rank, n = here()
    for dtype in DTYPES:
        mine = part(rank, (2, 3), dtype)
        x = mine.cuda()
        every = parts((2, 3), dtype)
        same(np.concatenate(every), dist.functional.all_gather(x), dtype)
        same(every[n - 1], dist.functional.broadcast(x, n - 1), dtype)
        same(number(mine), x, dtype)
        wide = part(rank, (2 * n, 3), dtype).cuda()
        rows = [number(part(r, (2 * n, 3), dtype))[2 * rank : 2 * rank + 2] for r in range(n)]
        same(np.concatenate(rows), dist.functional.all_to_all(wide), dtype)


@check(kernels=False)
def scattered_sums_and_one_root():
    rank, n = here()
    x = part(rank, (2 * n, 3)).cuda()
    total = sum(parts((2 * n, 3), td.float32))
    same(total[2 * rank : 2 * rank + 2], dist.functional.reduce_scatter(x))
    same(total if rank == n - 1 else 0 * total, dist.functional.reduce(x, n - 1))
    rows = [r + 1 for r in range(n)]
    mine = part(rank, (rows[rank], 2)).cuda()
    same(np.concatenate([number(part(r, (rows[r], 2))) for r in range(n)]), dist.functional.all_gather(mine, rows=rows))
    y = part(rank, (sum(rows), 2)).cuda()
    first = sum(rows[:rank])
    same(
        sum(parts((sum(rows), 2), td.float32))[first : first + rows[rank]], dist.functional.reduce_scatter(y, rows=rows)
    )


@check(kernels=False)
def several_tensors_at_once():
    rank, _ = here()
    xs = [part(rank, (5, k + 1)).cuda() for k in range(4)]
    for k, x in enumerate(dist.functional.all_reduce_coalesced(xs)):
        same(sum(parts((5, k + 1), td.float32)), x)


@check(kernels=False)
def in_the_background():
    rank, n = here()
    xs = [part(rank, (64, k + 1)).cuda() for k in range(5)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    for k, work in enumerate(works):
        assert work.wait()
        same(sum(parts((64, k + 1), td.float32)), xs[k])
    out, got = part(rank, (3,)).cuda(), td.zeros(3).cuda()
    works = [dist.isend(out, (rank + 1) % n), dist.irecv(got, (rank - 1) % n)]
    for work in works:
        work.wait()
    same(number(part((rank - 1) % n, (3,))), got)
    dist.barrier()


@check(kernels=False, on=(("shared_memory", 3),))
def groups_of_some_ranks():
    rank, _ = here()
    pair = dist.new_group([0, 2])
    if rank != 1:
        x = part(rank, (4,)).cuda()
        dist.all_reduce(x, group=pair)
        same(number(part(0, (4,))) + number(part(2, (4,))), x)


@check(kernels=False)
def programs_are_replayed_by_all_ranks_or_none():
    rank, n = here()

    @td.compile
    def step(x):
        y = dist.functional.all_reduce(x)
        return dist.functional.all_gather(y)

    for k in range(8):
        x = (part(rank, (4, 3)) + k).cuda()
        if rank == 1 and k in (5, 6):  # one rank's tensors move, and its graph no longer fits
            x, keep = (part(rank, (4, 3)) + k).cuda(), x  # noqa: F841
        total = sum(parts((4, 3), td.float32)) + n * k
        same(np.concatenate([total] * n), step(x), k)


@check(kernels=False, on=SMALL)
def ranks_that_disagree_show_both_lines():
    rank, _ = here()
    x = td.ones(3 + rank % 2).cuda()
    message = ""
    try:
        dist.all_reduce(x)
    except td.DistributedError as error:
        message = str(error)
    assert "rank 0: all_reduce(sum) of float32 (3,) on cuda" in message, message
    assert "rank 1: all_reduce(sum) of float32 (4,) on cuda" in message, message


@check(kernels=True)
def strided_operands_and_gradients():
    rank, n = here()
    turned = part(rank, (4, 6)).cuda().T
    same(sum(parts((4, 6), td.float32)).T, dist.functional.all_reduce(turned))
    x = part(rank, (2, 3)).cuda().requires_grad_()
    (dist.functional.all_reduce(x) * (rank + 1)).sum().backward()
    same(np.full((2, 3), n * (n + 1) / 2), x.grad)
    x.grad = None
    (dist.functional.all_gather(x) ** 2).sum().backward()
    same(2 * n * number(part(rank, (2, 3))), x.grad)


def _model():
    """Its weights are numbers of NumPy: threads share the generator."""
    model = td.nn.Sequential(
        td.nn.Linear(16, 64), td.nn.ReLU(), td.nn.Linear(64, 64), td.nn.ReLU(), td.nn.Linear(64, 4)
    )
    generator = np.random.default_rng(1)
    with td.no_grad():
        for p in model.parameters():
            p.copy_(td.tensor((generator.normal(size=tuple(p.shape)) / 8).astype(np.float32)))
    return model


def _train(model, step, x, y, device, steps=8):
    optimizer = td.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def one(x, y):
        optimizer.zero_grad()
        loss = td.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = td.compile(one) if step == "compiled" else one
    losses = [run(x.to(device), y.to(device)).item() for _ in range(steps)]
    return losses, [number(p.detach()) for p in model.parameters()]


def _data(rank: int, n: int):
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(8 * n, 16)), generator.normal(size=(8 * n, 4))
    rows = slice(8 * rank, 8 * rank + 8)
    return td.tensor(x[rows].astype(np.float32)), td.tensor(y[rows].astype(np.float32))


def _trains_as_one(mode: str, wrap):
    rank, n = here()
    x, y = _data(rank, n)
    whole = [np.concatenate(parts) for parts in zip(*[[p.numpy() for p in _data(r, n)] for r in range(n)], strict=True)]
    _, expected = _train(_model(), "eager", td.tensor(whole[0]), td.tensor(whole[1]), "cpu")
    model = wrap(_model().cuda())
    _, mine = _train(model, mode, x, y, "cuda")
    return expected, mine, model


@check(kernels=True)
def data_parallel_training_equals_one_process():
    for mode in ("eager", "compiled"):
        expected, mine, _ = _trains_as_one(mode, dist.data_parallel)
        for a, b in zip(expected, mine, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=mode)


@check(kernels=True, on=(("shared_memory", 2),))
def sharded_training_equals_one_process():
    for mode in ("eager", "compiled"):
        expected, _, model = _trains_as_one(mode, dist.fully_shard)
        full = dist.full_state_dict(model)
        for a, b in zip(expected, full.values(), strict=True):
            np.testing.assert_allclose(a, number(b), rtol=1e-4, atol=1e-5, err_msg=mode)


@check(kernels=True, on=SMALL)
def collectives_run_beside_kernels():
    """Reductions between kernels of one program that reads and writes the same memory again and again."""
    rank, n = here()

    @td.compile
    def step(x, w):
        sums = []
        for _ in range(6):
            x = td.tanh(x @ w)
            sums.append(dist.functional.all_reduce(x))
            x = x * 0.5 + 1.0
        return td.stack(sums).sum(0)

    w = (td.arange(64 * 64).reshape(64, 64).to(td.float32) % 7 - 3).cuda() / 16
    for k in range(6):
        result = number(step((part(rank, (64, 64)) + k).cuda(), w))
        expected = 0
        for r in range(n):
            x, sums = number(part(r, (64, 64))) + k, 0
            for _ in range(6):
                x = np.tanh(x @ number(w))
                sums, x = sums + x, x * 0.5 + 1.0
            expected = expected + sums
        np.testing.assert_allclose(expected, result, rtol=1e-3, atol=1e-3)


@check(kernels=True, on=SMALL)
def timings():
    x = td.ones(16 << 20).cuda()
    for size in (1 << 10, 1 << 18, 16 << 20):
        y = x[:size]
        for _ in range(3):
            dist.all_reduce(y, "avg")
        td.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(10):
            dist.all_reduce(y, "avg")
        td.cuda.synchronize()
        if dist.get_rank() == 0:
            print(
                f"    all_reduce of {size * 4 / 2**20:g} MB: {(time.perf_counter() - start) * 100:.3f} ms", flush=True
            )


# -- a rank that is killed


def _dies(path: str):
    """Rank 1 is killed while the others' collective is on the device."""
    rank, _ = here()
    x = td.ones(1 << 20).cuda()
    dist.all_reduce(x)
    td.cuda.synchronize()
    if rank == 1:
        a = td.ones(8192, 8192).cuda()
        for _ in range(200):  # its part waits for this, so that the others' kernels wait
            a = a @ a
        dist.all_reduce(x, async_op=True)
        time.sleep(0.5)
        with open(path, "w") as file:
            file.write(repr(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(x)
        x.sum().item()
        told = "nothing"
    except Exception as error:
        told = f"{type(error).__name__} {error}".partition("\n")[0]
    died = float(open(path).read())
    with open(f"{path}.{rank}", "w") as file:
        file.write(f"{time.time() - died:.2f} {told}")
    raise SystemExit(0)


def dies_in_nccl():
    """For the stand-in, which kills a rank in a call: the others write down what they are told."""
    x = td.ones(8).cuda()
    try:
        for _ in range(5):
            dist.all_reduce(x)
    except td.DistributedError as error:
        with open(os.path.join(os.environ["TANDEM_CACHE_DIR"], f"told.{dist.get_rank()}"), "w") as file:
            file.write(error.rule)
        raise


def a_killed_rank_is_named(tmp: str, n: int = 3) -> str:
    path = os.path.join(tmp, "died")
    ended = "all ranks ended"
    try:
        dist.spawn(_dies, n, (path,), timeout=60)
    except td.DistributedError as error:
        ended = str(error)
    files = [f"{path}.{rank}" for rank in range(n) if rank != 1]
    told = [open(file).read() if os.path.exists(file) else "wrote nothing" for file in files]
    for text in told:
        assert "DistributedError" in text and "rank 1" in text and float(text.split()[0]) < 2.0, (told, ended)
    return "; ".join(told)


# -- running them


def _run_checks(names: list[str], path: str):
    """On a rank. What is done is written to a file, as a failure ends all ranks; what begins is printed, by every rank, and where a
    rank is that has come no further for a minute."""
    for name in names:
        start = time.monotonic()
        _say(f"rank {dist.get_rank()} begins {name}")
        faulthandler.dump_traceback_later(60, repeat=False)
        CHECKS[name][0]()
        faulthandler.cancel_dump_traceback_later()
        dist.barrier()
        if dist.get_rank() == 0:
            _say(f"{name} is done after {time.monotonic() - start:.1f} s")
            with open(path, "a") as file:
                file.write(f"{name} {time.monotonic() - start:.1f}\n")


def _say(text: str):
    if "TANDEM_NCCL_PROGRESS" in os.environ:
        os.write(2, f"  {text}\n".encode())


def run_checks(names: list[str], engine: str, n: int) -> dict[str, str]:
    """{name: seconds, or what went wrong}; ranks are started again after a failure."""
    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as tmp:
        while left := [name for name in names if name not in results]:
            path, problem = os.path.join(tmp, "done"), "did not end"
            open(path, "w").close()
            try:
                dist.spawn(_run_checks, n, (left, path), engine=engine, timeout=60)
            except BaseException:
                problem = traceback.format_exc()
            done = dict(line.split() for line in open(path))
            results.update(done)
            if len(done) < len(left):
                results[left[len(done)]] = problem
    return results


def main(arguments: list[str]) -> int:
    failed = 0
    began = time.monotonic()
    engines = {engine for engine, _ in ALL}
    wanted = engines.intersection(arguments) or engines
    names = [name for name in arguments if name not in engines]
    for engine, n in [one for one in ALL if one[0] in wanted]:
        chosen = [name for name, (_, _, on) in CHECKS.items() if (engine, n) in on and (not names or name in names)]
        for name, result in run_checks(chosen, engine, n).items():
            good = "\n" not in result and result != "did not end"
            failed += not good
            print(f"{'ok    ' if good else 'FAILED'}  {n} {engine}: {name}  {result[-1500:]}", flush=True)
    if not names or "a_killed_rank_is_named" in names:
        with tempfile.TemporaryDirectory() as tmp:
            try:
                print(f"ok      a_killed_rank_is_named: {a_killed_rank_is_named(tmp)}", flush=True)
            except BaseException:
                failed += 1
                print(f"FAILED  a_killed_rank_is_named\n{traceback.format_exc()[-1500:]}", flush=True)
    print(f"{failed} failed, {time.monotonic() - began:.0f} s", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
