"""From kernels to functions on a device: NVRTC, several at a time (workers.py), and the cache on disk."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from hashlib import blake2b

from tandem import _runtime
from tandem.codegen.cuda import workers
from tandem.codegen.cuda.kernel import GUARDED, REPORTS, entry, extra_words
from tandem.codegen.cuda.render import source
from tandem.codegen.cuda.routines import (
    add_rows_kernel,
    copy_kernel,
    fill_kernel,
    join_rows_kernel,
    small_matmul_kernel,
    widen_kernel,
)
from tandem.errors import DeviceError, InternalError
from tandem.machine import disk_cache
from tandem.switches import DEBUG, cache_dir

FORMAT = b"tandem cubin 2\n"

_functions: dict[tuple[int, str], int] = {}  # (device, key) -> function
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_begun: dict[str, Future | workers.Job] = {}  # machine code that somebody will ask for


def load_kernels(kernels, device: int) -> list[_runtime.CudaFunction]:
    """The functions of kernels, with how they are launched."""
    return [
        _runtime.CudaFunction(function, *kernel.threads, extra_words(kernel), getattr(kernel, "shared", 0))
        for kernel, function in zip(kernels, functions(kernels, device), strict=True)
    ]


def own_kernel(kind: str, argument: int, device: int) -> int:
    """The function of a kernel that the runtime launches by itself (src/device/cuda/own_kernels.h)."""
    make = {
        "copy": lambda: copy_kernel(argument), "fill": fill_kernel, "widen": widen_kernel,
        "small_matmul": lambda: small_matmul_kernel(argument), "join_rows": lambda: join_rows_kernel(argument),
        "add_rows": lambda: add_rows_kernel(argument),
    }[kind]  # fmt: skip
    return functions([make()], device)[0]


def functions(kernels: list, device: int) -> list[int]:
    _, major, minor, *_ = _runtime.cuda_properties(device)
    capability = 10 * major + minor
    keys = [source_key(k, capability) for k in kernels]
    missing = {key: k for key, k in zip(keys, kernels) if (device, key) not in _functions}
    for key, image in _images(missing, device, capability):
        with _lock:
            if (device, key) not in _functions:
                name = entry(missing[key].name)
                _functions[device, key] = _runtime.cuda_load_module(
                    image, [name], device, getattr(missing[key], "shared", 0)
                )[0]
    return [_functions[device, key] for key in keys]


def source_key(kernel, capability: int) -> str:
    found = getattr(kernel, "source_key", None)
    if found is None:
        text = kernel.source = source(kernel)
        found = kernel.source_key = blake2b(text.encode(), digest_size=20).hexdigest()
    return f"{found}-{capability}"


def describe_kernel(kernel) -> tuple:
    """What a program that is kept on disk knows of a kernel: enough to launch it, and where its code is."""
    source_key(kernel, 0)
    return kernel.source_key, kernel.name, tuple(kernel.threads), extra_words(kernel), getattr(kernel, "shared", 0)


class StoredCudaKernel:
    """A kernel of which only the machine code is left. Raises LookupError if there is none for the device."""

    def __init__(self, device: int, key: str, name: str, threads: tuple[int, int], extra: int, shared: int):
        self.source_key, self.name, self.threads, self.shared = key, name, threads, shared
        self.reports, self.guarded = bool(extra & REPORTS), bool(extra & GUARDED)
        _, major, minor, *_ = _runtime.cuda_properties(device)
        if not disk_cache.read(
            _path(f"{key}-{10 * major + minor}") or "", FORMAT
        ):  # there is no source to compile it from
            raise LookupError(key)


def _path(key: str) -> str | None:
    directory = cache_dir()
    return os.path.join(directory, "cuda", key + ".cubin") if directory else None


def begin(kernel, device: int, capability: int):
    """Compiles a kernel of a program that is still being made, unless its code is there."""
    key = source_key(kernel, capability)
    if key not in _begun and (device, key) not in _functions and not os.path.exists(_path(key) or ""):
        exact = getattr(kernel, "exact", False)
        job = workers.offer(kernel.source, capability, kernel.name, exact, device)
        _begun[key] = job or _threads().submit(_image, key, kernel, capability)


@contextlib.contextmanager
def compiling_beside(device: int, operators: int):
    """While inside, a program of this many different operators is made; its kernels may still be compiled afterwards."""
    workers.expect(operators, device)
    try:
        yield
    except BaseException:  # there will be nobody who asks for them
        _begun.clear()
        workers.abandon()
        raise


def _threads() -> ThreadPoolExecutor:
    """NVRTC in this process; it lets other threads run."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max_workers=min(len(os.sched_getaffinity(0)), 16))
    return _pool


def _images(missing: dict, device: int, capability: int) -> Iterator[tuple[str, bytes]]:
    """Machine code by key, in the order in which it comes, so that some is loaded while the rest is compiled."""
    if len(missing) > 1:
        for kernel in missing.values():
            begin(kernel, device, capability)
    pending = {key: _begun.pop(key) for key in missing if key in _begun}
    try:
        for key in [key for key in missing if key not in pending]:
            yield key, _image(key, missing[key], capability)
        while pending:
            made = [key for key, job in pending.items() if job.done()]
            for key in made:
                image = _made(key, missing[key], pending.pop(key))
                if image is None:  # by no worker
                    pending[key] = _threads().submit(_image, key, missing[key], capability)
                else:
                    yield key, image
            if not made:
                key = _wait(pending)
                if key is not None:
                    del pending[key]
                    yield key, _image(key, missing[key], capability)
    finally:
        workers.withdraw([job for job in pending.values() if isinstance(job, workers.Job)])


def _made(key: str, kernel, job: Future | workers.Job) -> bytes | None:
    if isinstance(job, Future):
        try:
            return job.result()
        except (DeviceError, InternalError) as error:  # told in the thread, which knows of no line of the user's
            raise type(error)(error.op, error.rule, error.fix) from None
    if job.image is not None:
        _show(kernel)
        _keep(key, job.image)
    return job.image


def _wait(pending: dict) -> str | None:
    """Until something is done; or the key of what this thread had better compile itself meanwhile."""
    from tandem.codegen.cuda import nvrtc

    jobs = {job: key for key, job in pending.items() if isinstance(job, workers.Job)}
    if not jobs:
        wait_for(pending.values(), return_when=FIRST_COMPLETED)
        return None
    job = workers.take(jobs, nvrtc.is_open())
    if job is None:
        workers.wait(jobs, 0.02)  # nobody wakes it for what threads have done, or for answers that another thread takes
    return job and jobs[job]


def _image(key: str, kernel, capability: int) -> bytes:
    path = _path(key)
    image = path and disk_cache.read(path, FORMAT)
    if not image:
        from tandem.codegen.cuda.nvrtc import compile_source

        _show(kernel)
        image = compile_source(kernel.source, capability, kernel.name, getattr(kernel, "exact", False))
        _keep(key, image)
    elif DEBUG >= 4 and hasattr(kernel, "source"):
        print(f"tandem: kernel {kernel.name}: compiled before, and found in the cache; it is made of this")
        _show(kernel)
    return image


def _show(kernel):
    if DEBUG >= 4:
        print(f"tandem: kernel {kernel.name}\n{kernel.source}")


def _keep(key: str, image: bytes):
    path = _path(key)
    if path:
        disk_cache.write(path, FORMAT, image)


def _forget():
    """In a child of this process, which has none of its threads."""
    global _lock, _pool
    _lock, _pool = threading.Lock(), None
    _begun.clear()


os.register_at_fork(after_in_child=_forget)
