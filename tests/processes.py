"""Processes for tests: forked children and scripts, with time-outs."""

import os
import resource
import subprocess
import sys
import time
import traceback


def limit_memory(count: int):
    """What needs more than so many bytes is an error from here on. Not under AddressSanitizer, which maps terabytes."""
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (count, count))


def in_child(work, timeout: float = 300) -> int:
    """The exit status of a forked child that does this and ends as programs do, with what is registered for exit."""
    child = os.fork()
    if child == 0:
        import atexit

        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            atexit._run_exitfuncs()
            os._exit(status)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def run_script(
    code: str, folder, *arguments: str, timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess:
    """Runs a program in a process of its own, in this folder, where its modules can import what tests can."""
    script = folder / "script.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def left_in_memory(before: set[str]) -> set[str]:
    """Names in /dev/shm that were not there before, and that no process has in use: other programs come and go meanwhile."""
    found = set(os.listdir("/dev/shm")) - before
    for process in filter(str.isdigit, os.listdir("/proc")) if found else ():
        try:
            with open(f"/proc/{process}/maps") as lines:
                text = lines.read()
        except OSError:  # it has ended, or is another user's
            continue
        found = {name for name in found if f"/dev/shm/{name}\n" not in text}
    return {name for name in found if os.path.exists(f"/dev/shm/{name}")}


def open_files(folder) -> list[str]:
    """The files below a folder that this process has open or mapped."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:  # the one that listed them
            continue
    with open("/proc/self/maps") as lines:
        found += ["/" + line.partition("/")[2].rstrip("\n") for line in lines]
    return [name for name in found if name.startswith(str(folder))]
