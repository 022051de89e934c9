"""Policy gradient in a static graph: actions are drawn in the graph, rewards come from Python.

A robot stands somewhere on a line and wants to reach the middle; it sees its position and chooses left, stay or right. The world is
plain Python: `td.py_func` asks it for the reward in the middle of a run, between drawing the action and the gradient of its
logarithmic probability. Run: python examples/policy_gradient.py
"""

import numpy as np

import tandem as td

STEPS, BATCH, PLACES, HIDDEN = 300, 64, 7, 32


class Line:
    """The world. Knows nothing of graphs."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.asked = 0

    def look(self, count):
        return self.rng.integers(0, PLACES, count)

    def act(self, place, action):
        """1 for a step that leads nearer to the middle, or for staying there; a small cost otherwise."""
        self.asked += 1
        middle = PLACES // 2
        after = np.clip(place + action - 1, 0, PLACES - 1)
        good = (np.abs(after - middle) < np.abs(place - middle)) | ((place == middle) & (after == middle))
        return np.where(good, 1.0, -0.1).astype("f")


def main(steps=STEPS, seed=0, show=print):
    td.manual_seed(seed)
    world = Line(seed)
    graph = td.Graph()
    with graph:
        place = td.placeholder(td.int64, (None,), name="place")
        w1 = td.Variable(td.randn(PLACES, HIDDEN) * 0.3, name="w1")
        w2 = td.Variable(td.randn(HIDDEN, 3) * 0.3, name="w2")
        baseline = td.Variable(td.tensor(0.0), trainable=False, name="baseline")
        seen = td.equal(td.unsqueeze(place, 1), td.arange(PLACES)).astype(td.float32)
        logits = td.tanh(seen @ w1) @ w2
        # The largest of logits plus Gumbel noise is a draw from softmax(logits).
        noise = -td.log(-td.log(td.rand(place.shape[0], 3) * 0.9999 + 0.00005))
        action = td.argmax(logits.detach() + noise, 1)
        reward = td.py_func(world.act, [place, action], td.float32, (None,))
        chosen = td.equal(td.unsqueeze(action, 1), td.arange(3)).astype(td.float32)
        log_probability = (td.log_softmax(logits, 1) * chosen).sum(1)
        mean_reward = reward.mean()
        loss = -(log_probability * (reward - baseline)).mean()
        train = td.group(
            td.optim.Adam([w1, w2], lr=0.02).minimize(loss), baseline.assign(baseline * 0.9 + mean_reward * 0.1)
        )
        best = td.argmax(logits, 1)
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    rewards = []
    for step in range(steps):
        got, _ = session.run([mean_reward, train], {place: world.look(BATCH)})
        rewards.append(got.item())
        if step % (steps // 5) == 0:
            show(f"step {step:4}  mean reward {np.mean(rewards[-20:]):.3f}")
    policy = session.run(best, {place: np.arange(PLACES)}).tolist()
    show(f"policy {[['left', 'stay', 'right'][a] for a in policy]}")
    return rewards, policy, world


if __name__ == "__main__":
    main()
