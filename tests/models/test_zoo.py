"""Models that nobody named (benchmarks/zoo): compiled, none computes anything else, or has more kernels, than line by line."""

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


@pytest.mark.slow
@pytest.mark.parametrize("models", ["convnext,densenet,efficientnet,regnet,inception_v3,unet",
                                    "deeplab,retinanet,edsr,esrgan,ddpm,dit",
                                    "gan,vae,vqvae,bert,llama,mistral,t5",
                                    "mixture_of_experts,seq2seq,mamba2,linear_attention,wavenet",
                                    "conformer,tcn,fourier_operator,lstm_tagger,gcn,gat,pointnet,dgcnn",
                                    "dlrm,two_tower,nerf,ppo,dqn,neural_ode,vit,swin,mlp_mixer,clip,capsules,gmlp"])  # fmt: skip
def test_compiled_steps_are_equal_to_eager_ones(models):
    done = subprocess.run([sys.executable, ZOO, "--equal", "--models", models], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
