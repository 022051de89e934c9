"""A generative adversarial network in a static graph: two train operations that take turns on one graph.

The generator turns noise into points; the discriminator learns to tell them from samples of a ring. Each train operation changes
its own variables only. Run: python examples/gan_static.py
"""

import itertools
import math

import numpy as np

import tandem as td

STEPS, BATCH, NOISE, HIDDEN = 600, 128, 4, 48


def ring(rng, count):
    """Points near a circle with radius 2."""
    angle = rng.uniform(0, 2 * math.pi, count)
    radius = 2 + 0.1 * rng.standard_normal(count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype("f")


def layers(name, sizes):
    """Variables of a network with these widths."""
    made = []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        made += [
            td.Variable(td.randn(n, m) * math.sqrt(2 / n), name=f"{name}/w{k}"),
            td.Variable(td.zeros(m), name=f"{name}/b{k}"),
        ]
    return made


def apply(variables, x):
    last = len(variables) // 2 - 1
    for k in range(last + 1):
        x = x @ variables[2 * k] + variables[2 * k + 1]
        if k < last:
            x = td.leaky_relu(x, 0.2)
    return x


def cross_entropy(logits, label):
    return (td.softplus(logits) - logits * label).mean()


def main(steps=STEPS, seed=0, show=print):
    td.manual_seed(seed)
    graph = td.Graph()
    with graph:
        real = td.placeholder(td.float32, (None, 2), name="real")
        generator = layers("generator", [NOISE, HIDDEN, HIDDEN, 2])
        discriminator = layers("discriminator", [2, HIDDEN, HIDDEN, 1])
        fake = apply(generator, td.randn(real.shape[0], NOISE))
        on_real, on_fake = apply(discriminator, real), apply(discriminator, fake)
        d_loss = cross_entropy(on_real, 0.9) + cross_entropy(on_fake, 0.0)
        g_loss = cross_entropy(on_fake, 1.0)
        train_d = td.optim.Adam(discriminator, lr=2e-3, betas=(0.5, 0.99)).minimize(d_loss)
        train_g = td.optim.Adam(generator, lr=1e-3, betas=(0.5, 0.99)).minimize(g_loss)
        init = td.global_variables_initializer()
    session, rng = td.Session(graph), np.random.default_rng(seed)
    session.run(init)
    radius = np.zeros(1)
    for step in range(steps + 1):
        _, d = session.run([train_d, d_loss], {real: ring(rng, BATCH)})
        _, g = session.run([train_g, g_loss], {real: ring(rng, BATCH)})
        if step % (steps // 4) == 0:
            radius = np.linalg.norm(session.run(fake, {real: ring(rng, 2000)}).numpy(), axis=1)
            show(f"step {step:4}  d {d.item():.3f}  g {g.item():.3f}  radius {radius.mean():.2f} +- {radius.std():.2f}")
    return session, {"real": real, "fake": fake, "train_d": train_d, "train_g": train_g, "generator": generator,
                     "discriminator": discriminator, "radius": radius}  # fmt: skip


if __name__ == "__main__":
    main()
