"""Native tests: each *_test.cc that names its sources in a line `// links: ...` is compiled with sanitizers and run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _links(path: Path) -> list[str] | None:
    for line in path.read_text().splitlines()[:5]:
        if line.startswith("// links:"):
            return line.removeprefix("// links:").split()
    return None


TESTS = [path for path in sorted(Path(__file__).parent.rglob("*_test.cc")) if _links(path)]


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_native(path, sanitizer, tmp_path):
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = tmp_path / path.stem
    sources = [path, *(ROOT / source for source in _links(path))]
    flags = ["-std=c++20", "-O1", "-g", f"-fsanitize={sanitizer}", f"-I{ROOT / 'src'}", "-pthread"]
    subprocess.run([compiler, *flags, *sources, "-o", program], check=True)
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    environment["TSAN_OPTIONS"] = "die_after_fork=0"  # the thread pool's test forks
    subprocess.run([program], check=True, timeout=240, env=environment)
