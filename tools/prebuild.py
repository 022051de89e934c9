"""Compile the kernels that come with the package: tandem/prebuilt-<level>.bin, read by tandem/machine/prebuilt.py.

    python tools/prebuild.py OUTPUT_FOLDER [--levels v3,v4] [--extension FOLDER] [--work FOLDER] [--jobs N] [--if-changed]

Calls every public function (prebuild_calls.py) and packs the kernels so made. Object code is kept in the work folder by content, so
that only what changed is compiled again. `--levels`: of processors, by default this one's; `none`: nothing is made. Files
of other levels are removed from the folder. `--warn`: what goes wrong is told and is no error; no file is left then.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--levels", default=os.environ.get("TANDEM_PREBUILT_LEVELS", ""))
    parser.add_argument(
        "--extension", type=pathlib.Path, help="folder of the built extension; by default the source tree's"
    )
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "prebuilt")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--if-changed", action="store_true", help="do nothing where what is there was made from the same sources"
    )
    parser.add_argument("--only", default="", help="only calls whose name has this in it")
    parser.add_argument("--worker", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--warn", action="store_true", help="never fail")
    options = parser.parse_args()
    if options.worker >= 0:
        Worker(options).run()
        return
    try:
        build(options)
    except Exception as error:
        if not options.warn:
            raise
        remove_others(options.output, set())
        print(f"warning: no kernels come with this build, they are compiled when first used: {error}", file=sys.stderr)


def build(options):
    if options.levels == "none":
        remove_others(options.output, set())
        return
    options.work.mkdir(parents=True, exist_ok=True)
    stamp, made_from = options.work / "stamp.json", describe_sources(options)
    if options.if_changed and stamp.exists():
        before = json.loads(stamp.read_text())
        if before["from"] == made_from and all((options.output / name).exists() for name in before["files"]):
            return
    started = time.perf_counter()
    package = arrange_package(options)
    if importlib.util.find_spec("llvmlite") is None:
        raise RuntimeError("llvmlite, which compiles them, is not installed")
    # An isolated build finds its requirements by way of PYTHONPATH.
    path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(options.work / "pycache")}
    environment |= {"TANDEM_" + name: "0" for name in ("CACHE", "PREBUILT", "COMPILE_WORKERS")} | {
        "TANDEM_NUM_THREADS": "1"
    }
    command = [sys.executable, __file__, *sys.argv[1:], "--work", str(options.work), "--jobs", str(options.jobs)]
    workers = [subprocess.Popen([*command, "--worker", str(i)], env=environment) for i in range(options.jobs)]
    codes = [worker.wait() for worker in workers]
    if any(codes):
        raise RuntimeError("prebuild: a worker failed, see above")
    found = [json.loads((options.work / f"found-{i}.json").read_text()) for i in range(options.jobs)]
    sys.path.insert(0, str(package))
    from tandem.codegen.loops import RENDERED
    from tandem.machine import prebuilt

    options.output.mkdir(parents=True, exist_ok=True)
    files = []
    keys = sorted({key for part in found for key in part["keys"]})
    calls = sorted({key for part in found for key in part["calls"]})
    for level in found[0]["levels"]:
        kernels = {key: (options.work / level / (key + ".o")).read_bytes() for key in keys}
        dictionary = dictionary_of(list(kernels.values()))
        content = prebuilt.pack(kernels | dict.fromkeys(calls, b""), level, dictionary, RENDERED)
        path = options.output / f"prebuilt-{level}.bin"
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(content)
        temporary.replace(path)
        files.append(path.name)
        print(
            f"prebuild: {path.name}: {len(kernels)} kernels, {len(content) / 2**20:.1f} MiB, {time.perf_counter() - started:.0f} s"
        )
        if not options.only:
            remove_others(options.work / level, {key + ".o" for key in keys})
    remove_others(options.output, set(files))
    stamp.write_text(json.dumps({"from": made_from, "files": files}))


def remove_others(folder: pathlib.Path, wanted: set[str]):
    """What earlier runs left: files of other levels, kernels that nothing needs any more."""
    for path in [*folder.glob("prebuilt-*.bin"), *folder.glob("*.o")]:
        if path.name not in wanted:
            path.unlink()


def describe_sources(options) -> str:
    """A hash of everything that the files are made from."""
    digest = hashlib.blake2b(f"{options.levels} {options.only} {sys.version}".encode())
    folders = [
        (ROOT / "tandem", "**/*.py"),
        (options.extension or ROOT / "tandem", "_runtime*.so"),
        (ROOT / "tools", "prebuild*.py"),
    ]
    for folder, pattern in folders:
        for path in sorted(folder.glob(pattern)):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def arrange_package(options) -> pathlib.Path:
    """A folder with the package in it: the Python files of the tree, the extension as built. What is to be put on Python's path."""
    if options.extension is None:
        return ROOT
    folder = options.work / "path"
    shutil.rmtree(folder, ignore_errors=True)
    package = folder / "tandem"
    package.mkdir(parents=True)
    for path in (ROOT / "tandem").iterdir():
        if path.suffix not in (".so", ".bin") and path.name not in ("lib", "__pycache__"):
            (package / path.name).symlink_to(path)
    for path in options.extension.resolve().iterdir():
        if path.name == "lib" or (path.name.startswith("_runtime") and path.suffix == ".so"):
            (package / path.name).symlink_to(path)
    return folder


def dictionary_of(objects: list[bytes]) -> bytes:
    """What zlib is told beforehand: object files have their outer parts in common."""
    step = max(1, len(objects) // 24)
    return b"".join(code[:512] + code[-1024:] for code in objects[::step])[-(1 << 15) :]


class Worker:
    """Makes every n-th call. In this process, what is not in the work folder yet is compiled for all levels."""

    def __init__(self, options):
        from tandem import _runtime
        from tandem.codegen import compile
        from tandem.codegen.levels import LEVELS
        from tandem.machine import prebuilt

        self.options = options
        self.compile = compile
        self.prebuilt = prebuilt
        self.own = LEVELS.get(_runtime.cpu_level())
        names = [f"x86-64-{n}" if n in ("v2", "v3", "v4") else n for n in options.levels.split(",") if n]
        unknown = [n for n in names if n not in LEVELS]
        if unknown:
            sys.exit(f"prebuild: there is no level {', '.join(unknown)}; levels are {', '.join(LEVELS)}")
        self.levels = [LEVELS[n] for n in names] or [level for level in [self.own] if level]
        self.keys: set[str] = set()
        self.calls: set[str] = set()
        for level in self.levels:
            (options.work / level.name).mkdir(parents=True, exist_ok=True)

    def run(self):
        warnings.simplefilter("ignore")
        self.compile.compile_object = self.compiled
        import tandem as td
        from tandem.tracing import compile

        self.compile_plan, compile.compile_plan = compile.compile_plan, self.planned

        sys.path.insert(0, str(ROOT / "tools"))
        from prebuild_calls import cases

        failed, times = [], []
        for name, function in [c for c in cases() if self.options.only in c[0]][
            self.options.worker :: self.options.jobs
        ]:
            td.manual_seed(0)
            started, before = time.process_time(), len(self.keys)
            try:
                function()
            except Exception as error:
                failed.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            times.append((time.process_time() - started, len(self.keys) - before, name))
        result = {
            "levels": [level.name for level in self.levels],
            "keys": sorted(self.keys),
            "calls": sorted(self.calls),
            "failed": failed,
            "times": sorted(times)[::-1],
        }
        (self.options.work / f"found-{self.options.worker}.json").write_text(json.dumps(result, indent=1))

    def planned(self, function, spec):
        """Stands in for tracing.compile.compile_plan."""
        plan = self.compile_plan(function, spec)
        self.calls.add(self.prebuilt.call_key(function, spec))
        return plan

    def compiled(self, kernel) -> bytes:
        """Stands in for compile.compile_object."""
        key = f"{kernel.key}-{self.compile.RENDERED}"
        self.keys.add(key)
        made = {level.name: self.object_for(kernel, key, level) for level in self.levels}
        if self.own and self.own.name in made:
            return made[self.own.name]
        return self.compile.object_of(self.compile.text_of(kernel))

    def object_for(self, kernel, key: str, level) -> bytes:
        path = self.options.work / level.name / (key + ".o")
        if path.exists():
            return path.read_bytes()
        code = self.compile.object_of(self.compile.text_of(kernel, level), level)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_bytes(code)
        temporary.replace(path)
        return code


if __name__ == "__main__":
    main()
