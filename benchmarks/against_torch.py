"""Functions that PyTorch users reach for, timed against PyTorch's in one process: ratio of the quickest runs (below 1 is quicker).

    python benchmarks/against_torch.py [part of a name ...]

Needs PyTorch. Both run on one thread, so that other work on the machine disturbs little. Each line is an expression in
which m is tandem or torch; x, y are float32 of 10^3 and 10^6 elements.
"""

import sys
import time

import numpy as np
import torch
import torch.nn.functional

import tandem as td

TABLE = """
m.special.i0(x)
m.special.i0e(x)
m.special.i1(x)
m.special.i1e(x)
m.special.bessel_j0(x)
m.special.bessel_j1(x)
m.special.bessel_y0(p)
m.special.bessel_y1(p)
m.special.modified_bessel_k0(p)
m.special.modified_bessel_k1(p)
m.special.scaled_modified_bessel_k0(p)
m.special.airy_ai(x)
m.special.spherical_bessel_j0(x)
m.special.erfcx(x)
m.special.log_ndtr(x)
m.special.ndtr(x)
m.special.ndtri(u)
m.special.entr(p)
m.special.gammainc(p, q)
m.special.gammaincc(p, q)
m.special.zeta(p + 1.1, q)
m.special.xlog1py(x, p)
m.special.gammaln(p)
m.special.psi(p)
m.polygamma(1, p)
m.mvlgamma(p + 2, 2)
m.special.chebyshev_polynomial_t(x, 5)
m.special.hermite_polynomial_h(x, 5)
m.special.legendre_polynomial_p(x, 5)
m.sinc(x)
m.gcd(i, j)
m.lcm(i, j)
m.frexp(x)
m.ldexp(x, i)
m.heaviside(x, y)
m.cdist(a, b)
m.cdist(a, b, p=1.0)
m.nn.functional.pdist(a)
m.dist(x, y)
m.renorm(s, 2, 0, 1.0)
m.trapezoid(x)
m.cumulative_trapezoid(x)
m.gradient(x)
m.cov(s)
m.corrcoef(s)
m.bincount(i)
m.histc(x, 100)
m.histogram(x, 50)
m.mode(i)
m.msort(s)
m.nanmedian(x)
m.median(x)
m.quantile(x, 0.3)
m.nanquantile(x, 0.3)
m.logcumsumexp(x, 0)
m.cummax(x, 0)
m.cumprod(x, 0)
m.unique(i)
m.unique(i, return_inverse=True, return_counts=True)
m.unique_consecutive(i)
m.kron(s[:10], s[:10])
m.addr(s, s[:, 0].contiguous(), s[0])
m.block_diag(s, s)
m.cartesian_prod(v, v)
m.combinations(v)
m.vander(v)
m.take_along_dim(x, i, 0)
m.segment_reduce(x, "sum", lengths=lengths)
m.index_reduce(x, 0, i % n, y, "amax")
m.scatter_reduce(x, 0, i % n, y, "mean")
m.masked_select(x, x > 0)
m.masked_scatter(x, x > 0, y)
m.bucketize(x, v)
m.kthvalue(x, 10)
m.topk(x, 10)
m.repeat_interleave(x, 3)
m.roll(x, 5)
m.tril(s)
m.hann_window(n)
m.poisson(p * 5)
m.binomial(p.ceil() * 20, u)
m.empty_like(x).cauchy_()
m.empty_like(x).log_normal_()
m.empty_like(x).geometric_(0.3)
m.multinomial(u[:1000], 100)
m.nn.functional.grid_sample(image, grid, align_corners=False)
m.nn.functional.grid_sample(image, grid, mode="bicubic", align_corners=False)
m.nn.functional.affine_grid(theta, (2, 3, side, side), align_corners=False)
m.nn.functional.interpolate(image, scale_factor=2, mode="nearest")
m.nn.functional.interpolate(image, scale_factor=2, mode="bilinear")
m.nn.functional.interpolate(image, scale_factor=2, mode="bicubic")
m.nn.functional.interpolate(image, scale_factor=0.5, mode="bilinear", antialias=True)
m.nn.functional.interpolate(image, scale_factor=0.5, mode="area")
m.nn.functional.unfold(image, 3)
m.nn.functional.pixel_shuffle(image[:, :1].expand(2, 4, side, side), 2)
m.nn.functional.fractional_max_pool2d(image, 2, output_size=(side // 2, side // 2))
m.nn.functional.lp_pool2d(image, 2, 2)
m.nn.functional.local_response_norm(image, 3)
m.nn.functional.pad(image, (1, 2, 1, 2), mode="reflect")
m.nn.functional.cosine_similarity(s, s)
m.nn.functional.ctc_loss(logp, targets, il, tl)
m.nn.functional.multi_margin_loss(s, labels)
m.nn.functional.multilabel_margin_loss(s[:, :40], ml)
m.nn.functional.poisson_nll_loss(x, p)
m.nn.functional.triplet_margin_loss(s, s + 1, s - 1)
m.nn.functional.embedding_bag(bags, s)
m.nn.functional.gumbel_softmax(s)
m.add(x, y, out=o)
"""


def arrays(n: int) -> dict:
    rng = np.random.default_rng(0)
    side = int((n / 6) ** 0.5)
    r = int(n**0.5)
    steps = 50 if n > 10**4 else 10
    logits = rng.normal(size=(steps, 8, 20)).astype("f")
    return {
        "x": rng.normal(size=n).astype("f"), "y": rng.normal(size=n).astype("f"), "p": rng.uniform(0.1, 5, n).astype("f"),
        "q": rng.uniform(0.1, 5, n).astype("f"), "u": rng.uniform(0.01, 0.99, n).astype("f"), "i": rng.integers(0, 1000, n),
        "j": rng.integers(1, 1000, n), "s": rng.normal(size=(r, n // r)).astype("f"), "a": rng.normal(size=(r, 16)).astype("f"),
        "b": rng.normal(size=(r, 16)).astype("f"), "v": np.sort(rng.normal(size=r)).astype("f"), "o": np.zeros(n, "f"),
        "image": rng.normal(size=(2, 3, side, side)).astype("f"), "grid": rng.uniform(-1, 1, (2, side, side, 2)).astype("f"),
        "theta": rng.normal(size=(2, 2, 3)).astype("f"), "lengths": np.full(n // 10, 10), "labels": rng.integers(0, n // r, r),
        "logp": logits - np.log(np.exp(logits).sum(-1, keepdims=True)), "targets": rng.integers(1, 20, (8, 4)),
        "il": np.full(8, steps), "tl": np.full(8, 4), "ml": rng.integers(0, min(40, n // r), (r, min(40, n // r))),
        "bags": rng.integers(0, r, (r, 5)), "n": n, "side": side,
    }  # fmt: skip


def quickest(run, budget: float) -> float:
    run()
    run()
    best, end = float("inf"), time.perf_counter() + budget
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def main():
    wanted = sys.argv[1:]
    torch.set_num_threads(1)
    td.set_num_threads(1)
    ratios = {10**3: [], 10**6: []}
    for line in TABLE.strip().splitlines():
        if wanted and not any(w in line for w in wanted):
            continue
        code = compile(line, line, "eval")
        shown = []
        for n, values in DATA.items():
            times = []
            for module, make in ((td, td.tensor), (torch, torch.tensor)):
                scope = {
                    k: make(v) if isinstance(v, np.ndarray) else v for k, v in values.items() if k in code.co_names
                } | {"m": module}
                try:
                    times.append(quickest(lambda code=code, scope=scope: eval(code, scope), 0.08))
                except Exception as error:
                    times.append(float("nan"))
                    print(module.__name__, line, n, type(error).__name__, str(error)[:100])
            ratios[n].append(times[0] / times[1])
            shown.append(f"{times[0] * 1e6:10.1f} us {times[0] / times[1]:6.2f}x")
        print(f"{line[:80]:80s} {'   '.join(shown)}", flush=True)
    for n, found in ratios.items():
        print(f"median at {n}: {np.nanmedian(found):.2f}x, worse than 3x: {sum(r > 3 for r in found)}")


DATA = {n: arrays(n) for n in (10**3, 10**6)}

if __name__ == "__main__":
    main()
