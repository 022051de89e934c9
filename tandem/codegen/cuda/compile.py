"""From kernels to functions on a device: NVRTC, several at a time, and the cache on disk."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b

from tandem import _runtime
from tandem.codegen import cache
from tandem.codegen.cuda.kernel import entry
from tandem.codegen.cuda.render import source
from tandem.switches import DEBUG, cache_dir

FORMAT = b"tandem cubin 1\n"

_functions: dict[tuple[int, str], int] = {}  # (device, key) -> function
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_begun: dict[str, Future] = {}  # machine code that somebody will ask for


def load_kernels(kernels, device: int):
    """What the runtime asks for: of a list of kernels, [(function, threads x, threads y, whether it reports,
    bytes of shared memory)]; of an int, the kernel that copies elements of that size, that fills (0) or widens (-1), or of a
    dtype's number - 1000 that multiplies small matrices; of a name, where that library may be."""
    if isinstance(kernels, str):
        from tandem.cuda.libraries import candidates

        return list(candidates(kernels))
    if isinstance(kernels, int):
        from tandem.codegen.cuda.routines import copy_kernel, fill_kernel, small_matmul_kernel, widen_kernel

        if kernels in (0, -1):
            return functions([fill_kernel() if kernels == 0 else widen_kernel()], device)[0]
        return functions([copy_kernel(kernels) if kernels > 0 else small_matmul_kernel(kernels + 1000)], device)[0]
    return [
        (function, *kernel.threads, kernel.reports, getattr(kernel, "shared", 0))
        for kernel, function in zip(kernels, functions(kernels, device))
    ]


def functions(kernels: list, device: int) -> list[int]:
    _, major, minor, *_ = _runtime.cuda_properties(device)
    capability = 10 * major + minor
    keys = [source_key(k, capability) for k in kernels]
    missing = {key: k for key, k in zip(keys, kernels) if (device, key) not in _functions}
    if missing:
        images = dict(zip(missing, _images(missing, capability)))
        with _lock:
            for key, image in images.items():
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
    return kernel.source_key, kernel.name, tuple(kernel.threads), kernel.reports, getattr(kernel, "shared", 0)


class StoredCudaKernel:
    """A kernel of which only the machine code is left. Raises LookupError if there is none for the device."""

    def __init__(self, device: int, key: str, name: str, threads: tuple[int, int], reports: bool, shared: int):
        self.source_key, self.name, self.threads, self.reports, self.shared = key, name, threads, reports, shared
        _, major, minor, *_ = _runtime.cuda_properties(device)
        if not os.path.exists(_path(f"{key}-{10 * major + minor}") or ""):
            raise LookupError(key)


def _path(key: str) -> str | None:
    directory = cache_dir()
    return os.path.join(directory, "cuda", key + ".cubin") if directory else None


def begin(kernel, device: int, capability: int):
    """Compiles a kernel of a program that is still being made; NVRTC lets other threads run meanwhile."""
    key = source_key(kernel, capability)
    if key not in _begun and (device, key) not in _functions:
        _begun[key] = _threads().submit(_image, key, kernel, capability)


def _threads() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max_workers=min(len(os.sched_getaffinity(0)), 16))
    return _pool


def _images(missing: dict, capability: int) -> list[bytes]:
    begun = {key: _begun.pop(key) for key in missing if key in _begun}
    if len(missing) == 1 and not begun:
        return [_image(key, kernel, capability) for key, kernel in missing.items()]
    for key, kernel in missing.items():
        if key not in begun:
            begun[key] = _threads().submit(_image, key, kernel, capability)
    return [begun[key].result() for key in missing]


def _image(key: str, kernel, capability: int) -> bytes:
    path = _path(key)
    image = path and cache.read(path, FORMAT)
    if not image:
        from tandem.cuda.nvrtc import compile_source

        if DEBUG >= 4:
            print(f"tandem: kernel {kernel.name}\n{kernel.source}")
        image = compile_source(kernel.source, capability, kernel.name, getattr(kernel, "exact", False))
        if path:
            cache.write(path, FORMAT, image)
    return image
