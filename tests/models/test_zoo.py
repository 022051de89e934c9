"""Models that nobody named (benchmarks/zoo): compiled, none has more kernels than line by line."""

import pathlib
import subprocess
import sys

import pytest

ZOO = pathlib.Path(__file__).parents[2] / "benchmarks" / "zoo.py"


@pytest.mark.slow
@pytest.mark.parametrize("models", ["swin,dgcnn,pointnet,convnext", "unet,vae,densenet,efficientnet", "bert,t5,llama,mamba2",
                                    "wavenet,conformer,gat,dlrm", "nerf,dqn,edsr,vit"])  # fmt: skip
def test_compiled_steps_have_no_more_kernels(models):
    done = subprocess.run([sys.executable, ZOO, "--count", "--models", models], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
