"""Build wheels, have auditwheel tag them, check them and try them in clean environments: what `make wheel` runs.

    python tools/wheel.py [--pythons 3.11,3.12] [--levels v2,v3,v4] [--output dist] [--jobs N]

A wheel is for one version of Python. Without `--pythons`, those from 3.11 on that are found here are built for: on the path,
and below ~/.pyenv and ~/.local/share/uv. `--levels`: of processors that kernels come with (tandem/codegen/levels.py); `none` is
quick. Build requirements are those of requirements.lock.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "wheel"
OLDEST = (3, 11)
# Libraries of the package itself, which auditwheel must neither look for nor copy.
OWN = ["libtomp.so.1", "libdnnl.so.3", "libscipy_openblas.so"]

ASK = """
import os, sys, sysconfig
assert sys.implementation.name == "cpython" and os.path.exists(sysconfig.get_path("include") + "/Python.h")
print("%d.%d" % sys.version_info[:2])
"""

TRIAL = """
import os, sys
import tandem as td
from tandem import _runtime
from tandem.machine import prebuilt
from tandem.cli import main
assert os.path.dirname(td.__file__).startswith(sys.prefix), td.__file__
levels = {name for name in os.listdir(os.path.dirname(td.__file__)) if name.startswith("prebuilt-")}
here = _runtime.cpu_level()
print("kernels that came along:", ", ".join(sorted(levels)) or "none", "| level of this processor:", here or "none")
opened = prebuilt.file() is not None
assert opened == (f"prebuilt-{here}.bin" in levels), f"kernels for {here}: {'opened' if opened else 'not opened'}"
if levels and not opened:
    print("none of these kernels is for this processor: they are not tried here, and the package compiles its own")
td.linalg.qr(td.rand(4, 4))
model = td.nn.Sequential(td.nn.Conv2d(1, 2, 3), td.nn.ReLU(), td.nn.Flatten(), td.nn.Linear(72, 3))
td.compile(lambda x: model(x).square().sum())(td.rand(2, 1, 8, 8)).backward()
td.save(model.state_dict(), os.path.join(sys.argv[1], "model.safetensors"))
model.load_state_dict(td.load(os.path.join(sys.argv[1], "model.safetensors")))
sys.exit(main(["doctor"]))
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pythons", default=os.environ.get("PYTHONS", ""))
    parser.add_argument("--levels", default=os.environ.get("TANDEM_PREBUILT_LEVELS") or "v2,v3,v4")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "dist")
    options = parser.parse_args()
    pythons = found_pythons()
    if options.pythons:
        wanted = options.pythons.replace(",", " ").split()
        missing = [v for v in wanted if v not in pythons]
        if missing:
            sys.exit(f"wheel: Python {', '.join(missing)} is not here; found {', '.join(pythons) or 'none'}")
        pythons = {v: pythons[v] for v in wanted}
    made = [build(version, python, options) for version, python in pythons.items()]
    print("\n".join(f"wheel: {path}" for path in made))


def found_pythons() -> dict[str, str]:
    """Interpreters with headers by version, oldest first."""
    home = pathlib.Path.home()
    candidates = [sys.executable]
    candidates += [p for n in range(OLDEST[1], 20) if (p := shutil.which(f"python3.{n}"))]
    for pattern in (".pyenv/versions/3.*/bin/python3", ".local/share/uv/python/cpython-3.*/bin/python3"):
        candidates += sorted(map(str, home.glob(pattern)))
    found = {}
    for candidate in candidates:
        done = subprocess.run([candidate, "-c", ASK], capture_output=True, text=True)
        version = done.stdout.strip()
        if done.returncode == 0 and tuple(map(int, version.split("."))) >= OLDEST:
            found.setdefault(version, candidate)
    return dict(sorted(found.items(), key=lambda item: [int(n) for n in item[0].split(".")]))


def build(version: str, python: str, options) -> pathlib.Path:
    venv = environment(version, python)
    raw = WORK / f"raw-{version}"
    shutil.rmtree(raw, ignore_errors=True)
    print(f"wheel: Python {version}: building, with kernels for {options.levels}", flush=True)
    run(
        venv / "bin/python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", raw,
        f"--config-settings=build-dir={WORK}/{{wheel_tag}}", "--config-settings=cmake.define.TANDEM_GLOO=OFF", ROOT,
        PATH=f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}", TANDEM_PREBUILT_LEVELS=options.levels,
        SOURCE_DATE_EPOCH=os.environ.get("SOURCE_DATE_EPOCH", commit_time()),
    )  # fmt: skip
    (wheel,) = raw.glob("*.whl")
    tagged = repair(venv, wheel, WORK / f"tagged-{version}")
    run(venv / "bin/python", ROOT / "tools/check_wheel.py", tagged, "--levels", options.levels)
    try_out(version, python, tagged)
    options.output.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(shutil.copy(tagged, options.output))


def environment(version: str, python: str) -> pathlib.Path:
    """A venv with what the lock says that a build needs."""
    venv = WORK / f"build-{version}"
    requirements = WORK / "requirements.txt"
    if not (venv / "bin/python").exists():
        run(python, "-m", "venv", venv)
    lines = run(sys.executable, ROOT / "tools/requirements.py", "build", "core", "wheel", output=True)
    requirements.write_text(lines)
    run(
        venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements,
        "-c", ROOT / "requirements.lock",
    )  # fmt: skip
    return venv


def repair(venv: pathlib.Path, wheel: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """The wheel with the tag of the oldest systems that it runs on, as auditwheel finds it."""
    shutil.rmtree(folder, ignore_errors=True)
    excluded = [argument for name in OWN for argument in ("--exclude", name)]
    path = f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # auditwheel looks libraries up where the loader would; those of the package lie in the wheel, by its own loader.
    run(venv / "bin/python", "-m", "auditwheel", "repair", "--wheel-dir", folder, *excluded, wheel, PATH=path)
    (tagged,) = folder.glob("*.whl")
    return tagged


def try_out(version: str, python: str, wheel: pathlib.Path):
    """Installs it into an empty environment, away from the source, and runs a little of everything."""
    venv = WORK / f"trial-{version}"
    shutil.rmtree(venv, ignore_errors=True)
    run(python, "-m", "venv", venv)
    run(venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    print(f"wheel: Python {version}: trying {wheel.name}", flush=True)
    run(venv / "bin/python", "-c", TRIAL, venv, cwd=venv, TANDEM_CACHE_DIR=str(venv / "cache"))


def commit_time() -> str:
    """When the source was last changed, so that files in the wheel get no other time on another day."""
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if re.fullmatch(r"\d+\n", done.stdout) else "315532800"


def run(*command, output: bool = False, cwd=None, **variables) -> str:
    remaining = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TANDEM_PREBUILT")}
    WORK.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        list(map(str, command)),
        env=remaining | variables,
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE if output else None,
    )
    if done.returncode:
        sys.exit(f"wheel: failed: {' '.join(map(str, command[:6]))}")
    return done.stdout or ""


if __name__ == "__main__":
    main()
