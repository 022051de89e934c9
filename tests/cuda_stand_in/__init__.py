"""A CUDA device that computes nothing, for machines that have none: see driver.c."""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


@functools.cache
def build() -> str | None:
    """A folder with the libraries, which all processes with these sources share; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    sources = hashlib.sha256(
        b"".join((HERE / name).read_bytes() for name in ("driver.c", "libraries.c", "nccl.c", "__init__.py"))
    )
    shared = Path(tempfile.gettempdir()) / f"tandem-stand-in-{os.getuid()}-{sources.hexdigest()[:16]}"
    if not shared.is_dir():
        folder = Path(tempfile.mkdtemp(prefix="tandem-stand-in-"))
        _build_in(folder, compiler)
        try:
            folder.rename(shared)  # another process may have been first
        except OSError:
            shutil.rmtree(folder)
    return str(shared)


def _build_in(folder: Path, compiler: str):
    for source, names in (
        ("driver.c", ["driver.so"]), ("libraries.c", ["libcublasLt.so.13", "libcudnn.so.9"]), ("nccl.c", ["libnccl.so.2"]),
    ):  # fmt: skip
        made = folder / names[0]
        subprocess.run([compiler, "-O1", "-w", "-shared", "-fPIC", "-o", made, HERE / source], check=True)
        for name in names[1:]:
            shutil.copy(made, folder / name)
    # It has no transforms: an empty library is found before a real one, whose memory this device's is not.
    subprocess.run([compiler, "-shared", "-o", folder / "libcufft.so.99", "-x", "c", os.devnull], check=True)


def environment(**more) -> dict:
    """What a process needs to find the stand-in."""
    folder = build()
    paths = [folder, os.environ.get("TANDEM_CUDA_PATH", "")]
    return {
        **os.environ, "TANDEM_CUDA_DRIVER": f"{folder}/driver.so",
        "TANDEM_CUDA_PATH": os.pathsep.join(p for p in paths if p), **more,
    }  # fmt: skip


def run(script: str, **more) -> str:
    """The output of a script in a process that has the device."""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(**more), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
