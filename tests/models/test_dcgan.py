"""DCGAN."""

import numpy as np

import tandem as td
from tandem import models
from tandem.nn import functional as F
from tests.models.small import check_training


def dcgan():
    noise = td.tensor(np.random.default_rng(0).normal(size=(2, 6, 1, 1)).astype(np.float32))
    generator, discriminator = models.Generator(6, 4, 1), models.Discriminator(4, 1)
    return generator, lambda: F.binary_cross_entropy_with_logits(discriminator(generator(noise)), td.ones(2))


def test_compiled_is_eager_and_the_loss_falls():
    check_training(dcgan)
