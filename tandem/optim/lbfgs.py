"""L-BFGS: second-order steps from the last few gradients."""

from __future__ import annotations

from tandem.autograd.modes import enable_grad, no_grad
from tandem.errors import UnsupportedError
from tandem.nn.utils.convert import vector_to_parameters
from tandem.ops import concat, full_like, reshape
from tandem.optim.optimizer import Optimizer, parts


class LBFGS(Optimizer):
    """Limited-memory BFGS. step(closure) evaluates the loss several times; there is one group of parameters.

    line_search_fn: None for steps of length lr, "strong_wolfe" for a search.

    >>> x = td.nn.Parameter(td.tensor([3.0, -2.0]))
    >>> optimizer = td.optim.LBFGS([x], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((x - 1) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> x.detach()
    tensor([1.0000, 1.0000])
    """

    def __init__(self, params, lr=1, max_iter: int = 20, max_eval: int | None = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None):  # fmt: skip
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueError(f"line_search_fn is {line_search_fn!r}; it must be None or 'strong_wolfe'")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        })  # fmt: skip
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS takes one group of parameters")
        self._params = self.param_groups[0]["params"]

    def _gradient(self):
        return concat([reshape(parts(full_like(p, 0) if p.grad is None else p.grad), (-1,)) for p in self._params], 0)

    def _vector(self):
        return concat([reshape(parts(p), (-1,)) for p in self._params], 0)

    def _evaluate(self, closure, x=None) -> tuple:
        if x is not None:
            vector_to_parameters(x, [parts(p) for p in self._params])
        with enable_grad():
            loss = closure()
        return loss, self._gradient()

    def minimize(self, loss, **settings):
        """Not offered: a step evaluates the loss several times, which takes a function; see step."""
        raise UnsupportedError(
            "minimize",
            "LBFGS computes the loss several times in a step, so it needs a function of it, not one value",
            fix="call optimizer.step(closure) in eager code; in a deferred graph use another optimiser, such as Adam",
        )

    @no_grad()
    def step(self, closure):
        """Minimises for up to max_iter iterations; gives the loss at the start."""
        group, state = self.param_groups[0], self.state[self._params[0]]
        lr, tolerance = group["lr"], group["tolerance_change"]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first, gradient = self._evaluate(closure)
        loss, evaluations = float(first), 1
        state["func_evals"] += 1
        if float(gradient.abs().amax()) <= group["tolerance_grad"]:
            return first
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(state, gradient, group["history_size"])
            state["prev_flat_grad"], previous = gradient.clone(), loss
            t = min(1.0, 1.0 / float(gradient.abs().sum())) * lr if state["n_iter"] == 1 else lr
            slope = float((gradient * direction).sum())
            if slope > -tolerance:
                break
            start, count = self._vector(), 0
            if group["line_search_fn"] == "strong_wolfe":

                def along(t, start=start, direction=direction):
                    loss, gradient = self._evaluate(closure, start + t * direction)
                    return float(loss), gradient

                loss, gradient, t, count = strong_wolfe(along, t, direction, loss, gradient, slope)
                vector_to_parameters(start + t * direction, [parts(p) for p in self._params])
            else:
                vector_to_parameters(start + t * direction, [parts(p) for p in self._params])
                if iteration != group["max_iter"]:
                    found, gradient = self._evaluate(closure)
                    loss, count = float(found), 1
            state.update({"d": direction, "t": t, "prev_loss": previous})
            evaluations += count
            state["func_evals"] += count
            step = direction * t
            if (
                evaluations >= group["max_eval"]
                or float(gradient.abs().amax()) <= group["tolerance_grad"]
                or float(step.abs().amax()) <= tolerance
                or abs(loss - previous) < tolerance
            ):
                break
        return first

    def _direction(self, state: dict, gradient, history_size: int):
        """-H @ gradient, by the two loops over the pairs (step, change of gradient) that are remembered."""
        if state["n_iter"] == 1:
            state.update({"old_dirs": [], "old_stps": [], "ro": [], "H_diag": 1.0})
            return -gradient
        change, step = gradient - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = float((change * step).sum())
        changes, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        if curvature > 1e-10:
            if len(changes) == history_size:
                for kept in (changes, steps, ro):
                    kept.pop(0)
            changes.append(change)
            steps.append(step)
            ro.append(1.0 / curvature)
            state["H_diag"] = curvature / float((change * change).sum())
        q, weights = -gradient, []
        for y, s, r in zip(reversed(changes), reversed(steps), reversed(ro), strict=True):
            weights.append(float((s * q).sum()) * r)
            q = q - weights[-1] * y
        q = q * state["H_diag"]
        for y, s, r, w in zip(changes, steps, ro, reversed(weights), strict=True):
            q = q + s * (w - float((y * q).sum()) * r)
        return q


def _cubic(x1, f1, g1, x2, f2, g2, bounds=None) -> float:
    """Where the cubic through two points with these slopes is lowest."""
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (low + high) / 2
    d2 = square**0.5
    place = (
        x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
        if x1 <= x2
        else x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    )
    return min(max(place, low), high)


def strong_wolfe(along, t, direction, loss, gradient, slope, c1=1e-4, c2=0.9, tolerance=1e-9, max_search=25):
    """A step length that satisfies the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6).

    along(t): loss and gradient at t. Gives loss, gradient, t and the number of evaluations.
    """

    def at(t):
        found, g = along(t)
        return t, found, g.clone(), float((g * direction).sum())

    size = float(direction.abs().amax())
    previous, start = (0.0, loss, gradient, slope), loss
    new, evaluations, iteration, done = at(t), 1, 0, False
    bracket = None
    while iteration < max_search:  # bracketing
        t, f, _, s = new
        if f > start + c1 * t * slope or (iteration > 1 and f >= previous[1]):
            bracket = [previous, new]
            break
        if abs(s) <= -c2 * slope:
            bracket, done = [new], True
            break
        if s >= 0:
            bracket = [previous, new]
            break
        limits = (t + 0.01 * (t - previous[0]), t * 10)
        following = _cubic(previous[0], previous[1], previous[3], t, f, s, limits)
        previous, new = new, at(following)
        evaluations, iteration = evaluations + 1, iteration + 1
    if bracket is None:
        bracket = [(0.0, loss, gradient, slope), new]
    stuck = False
    low, high = (0, -1) if bracket[0][1] <= bracket[-1][1] else (1, 0)
    while not done and iteration < max_search:  # zooming in
        width = abs(bracket[1][0] - bracket[0][0])
        if width * size < tolerance:
            break
        t = _cubic(*_point(bracket[0]), *_point(bracket[1]))
        least, most = min(bracket[0][0], bracket[1][0]), max(bracket[0][0], bracket[1][0])
        margin = 0.1 * (most - least)
        if min(most - t, t - least) < margin:  # too near an end: once is fine, then stay away
            if stuck or t >= most or t <= least:
                t = most - margin if abs(t - most) < abs(t - least) else least + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        new = at(t)
        evaluations, iteration = evaluations + 1, iteration + 1
        if new[1] > start + c1 * t * slope or new[1] >= bracket[low][1]:
            bracket[high] = new
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        else:
            if abs(new[3]) <= -c2 * slope:
                done = True
            elif new[3] * (bracket[high][0] - bracket[low][0]) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = new
    best = bracket[low]
    return best[1], best[2], best[0], evaluations


def _point(p) -> tuple:
    return p[0], p[1], p[3]
