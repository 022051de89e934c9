"""Compiles every kernel that the operator tests need on CUDA devices with NVRTC (pip install nvidia-cuda-nvrtc); needs no device.

    python tools/cuda_check.py [arguments of pytest, such as tests/ops/test_reduce.py or -n 4]

The tests run on a stand-in for the driver that computes nothing (tests/cuda_stand_in), so that operators and gradients take the
path that they take on one.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.cuda_stand_in import environment  # noqa: E402


def main():
    arguments = sys.argv[1:]
    if not any(a.startswith("tests") for a in arguments):
        arguments.append("tests/ops")
    variables = environment(CHECK_ONLY="nvrtc", PYTHONPATH=str(ROOT))
    os.chdir(ROOT)
    os.execve(sys.executable, [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments], variables)


if __name__ == "__main__":
    main()
