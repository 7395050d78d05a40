"""Policies that act outside of every region, and are trained in one. All scripts really run."""

from __future__ import annotations

import pytest
from half_support import cases, check_lines, check_runs

from amp_migrate.api import migrate_source
from amp_migrate.core.options import Options

_POLICY = """\
import numpy as np
class Env:
    def __init__(self):
        self.state = np.zeros(6, dtype=np.float32)
    def step(self, action):
        assert np.asarray(action).dtype in (np.float32, np.int64), action.dtype
        self.state = np.roll(self.state, 1) + 0.1
        self.state[0] = float(np.sum(action)) % 1
        return self.state.copy(), float(self.state.sum())
class Buffer:
    def __init__(self):
        self.rows = []
    def add(self, state, action):
        self.rows.append((state, action))
    def sample(self):
        states, actions = zip(*self.rows[-4:])
        return torch.tensor(np.stack(states)), torch.tensor(np.stack(actions))
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.head = nn.Linear(8, 2)
        self.last = None
    def forward(self, x):
        h = torch.tanh(self.body(x))
        self.last = h
        return self.head(h), h
    def act(self, x):
        scores, _ = self(x)
        chosen = torch.distributions.Categorical(logits=scores).sample()
        return chosen, scores, scores.argmax(1)
    def best(self, x):
        return self.act(x)[1].max(1)[0]
env, buffer = Env(), Buffer()
model = Policy().to(device)
"""
MIGRATED = cases("""\
=== what a method gives without gradients
POLICY
---
with torch.no_grad():
    action, scores, _ = model.act(x)
state, _ = env.step(scores.cpu().numpy())
loss = F.mse_loss(model(x)[0], y.expand(8, 2))
---
state, _ = env.step(scores.cpu().numpy())

=== states that a region left on the model
POLICY
---
out, _ = model(x)
loss = F.mse_loss(out, y.expand(8, 2))
state, _ = env.step(model.last.detach().numpy())
---
state, _ = env.step(full_last.detach().numpy())

=== with gradients
POLICY
---
state, _ = env.step(model.best(x).detach().cpu().numpy())
loss = F.mse_loss(model(x)[0], y.expand(8, 2))
---
state, _ = env.step(model.best(x).detach().cpu().numpy())

=== a method that a region runs as well
POLICY
---
with torch.no_grad():
    wanted = model.best(x).cpu().numpy()
state, _ = env.step(wanted)
loss = F.mse_loss(model.best(x), y[:, 0])
---
wanted = model.best(x).cpu().numpy()

=== a helper that others give what a region makes
POLICY
def array_of(value):
    return 2 * value
---
seen = array_of(model.best(x)).detach().numpy()
state, _ = env.step(seen)
scores, _ = model(x)
loss = F.mse_loss(array_of(scores), y.expand(8, 2))
---
seen = array_of(model.best(x)).detach().numpy()

=== integers of a returned tuple
POLICY
---
action, scores, places = model.act(x)
state, _ = env.step(places.cpu().numpy())
loss = F.mse_loss(scores, y.expand(8, 2))
---
state, _ = env.step(places.cpu().numpy())

=== one element of a nested tuple
POLICY
def both(x):
    out, h = model(x)
    return (out, x), h
---
pair, h = both(x)
state, _ = env.step(pair[1].numpy())
state, _ = env.step(both(x)[0][1].numpy())
loss = F.mse_loss(pair[0], y.expand(8, 2))
---
state, _ = env.step(pair[1].numpy())
state, _ = env.step(both(x)[0][1].numpy())
""".replace("POLICY\n", _POLICY))


@pytest.mark.parametrize("name", MIGRATED)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_migrated(name: str, dtype: str) -> None:
    case = MIGRATED[name]
    result = migrate_source(case.source, options=Options(dtype=dtype))
    assert result.changed, result.diagnostics
    check_lines(result.output, case.lines)
    if dtype == "float16":
        check_runs(case.source, result.output)


REFUSED = cases("""\
=== a helper that is given what a region makes
POLICY
def array_of(value):
    return 2 * value
---
scores, _ = model(x)
seen = array_of(eval("scores") if len(buffer.rows) else scores).detach().numpy()
loss = F.mse_loss(scores, y.expand(8, 2))
---
seen =
""".replace("POLICY\n", _POLICY))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_refused(name: str, dtype: str) -> None:
    case = REFUSED[name]
    result = migrate_source(case.source, options=Options(dtype=dtype))
    assert result.output == case.source
    (found,) = result.diagnostics
    assert found.code == "AMP020"
    assert found.blocker is not None
    assert found.blocker.text.startswith(case.lines[0])


APART = cases(
    """\
=== actions as arrays
POLICY
---
if len(buffer.rows) < 4:
    action = np.ones(2, dtype=np.float32)
else:
    with torch.no_grad():
        action = model(torch.tensor(env.state)[None])[0][0].numpy()
state, reward = env.step(action)
print(reward)
buffer.add(state, action)
states, actions = buffer.sample()
out, _ = model(states)
loss = F.mse_loss(out, actions)
---

=== actions in branches with gradients
POLICY
---
if len(buffer.rows) < 4:
    action = np.array([0.5 for _ in range(2)], dtype=np.float32)
else:
    action, _ = model(torch.tensor(env.state)[None])
    action = action[0].detach().cpu().numpy()
state, reward = env.step(action)
print(reward)
buffer.add(state, action)
states, actions = buffer.sample()
out, _ = model(states)
loss = F.mse_loss(out, actions)
---

=== an action as a number
POLICY
---
place = model(torch.tensor(env.state)[None])[0].argmax().item()
action = np.full(2, place, dtype=np.float32)
state, reward = env.step(action)
print(reward)
buffer.add(state, action)
states, actions = buffer.sample()
out, _ = model(states)
loss = F.mse_loss(out, actions)
---

=== actions as tensors
POLICY
@torch.no_grad()
def choose(state):
    return model(torch.tensor(state)[None])[0][0]
---
action = choose(env.state)
state, reward = env.step(action.numpy())
print(reward)
buffer.add(state, action.clone().numpy())
states, actions = buffer.sample()
out, _ = model(states)
loss = F.mse_loss(out, actions)
---

=== a function that gives arrays
PLAIN
class Agent:
    def __init__(self, net):
        self.net = net
    def select(self, state):
        action = self.net(torch.tensor(state)[None])[0][0]
        action = action.cpu().data.numpy().flatten()
        return action
agent = Agent(model)
---
action = (agent.select(env.state) + np.zeros(2, dtype=np.float32)).clip(-1, 1)
state, reward = env.step(action)
print(reward)
buffer.add(state, action)
states, actions = buffer.sample()
out, _ = model(states)
loss = F.mse_loss(out, actions)
---

=== what is kept without gradients
PLAIN
class Agent:
    def __init__(self, net):
        self.net = net
    def select(self, state):
        with torch.no_grad():
            self.seen = torch.tensor(state)[None]
            action = self.net(self.seen)[0][0].numpy()
        return torch.tensor(action)
agent = Agent(model)
---
action = agent.select(env.state)
state, reward = env.step(np.asarray(action))
print(reward)
buffer.add(state, np.asarray(action))
states, actions = buffer.sample()
out, _ = model(states)
loss = F.mse_loss(out, actions)
---

=== noise as large as an attribute says
PLAIN
class Agent:
    def __init__(self, net, sigma):
        self.net = net
        self.sigma = sigma
    def select(self, state):
        action = self.net(torch.tensor(state)[None])[0][0].detach().numpy()
        action = action + self.sigma * np.random.randn(2).astype(np.float32)
        return action
sigma = 0.125
agent = Agent(model, sigma)
---
action = agent.select(env.state)
state, reward = env.step(action)
print(reward)
buffer.add(state, action)
states, actions = buffer.sample()
out, _ = model(states)
loss = F.mse_loss(out, actions)
---
""".replace("PLAIN\n", _POLICY.replace("        self.last = h\n", "")).replace(
        "POLICY\n", _POLICY
    )
)


@pytest.mark.parametrize("name", APART)
def test_a_rollout_stays_outside_of_the_region(name: str) -> None:
    case = APART[name]
    result = migrate_source(case.source)
    assert result.changed, result.diagnostics
    lines = result.output.splitlines()
    regions = [i for i, line in enumerate(lines) if "with torch.autocast(" in line]
    assert len(regions) == 1, result.output
    assert "    state, reward = env.step(" in result.output
    assert "    print(reward)" in lines[: regions[0]]
    check_runs(case.source, result.output)


_KEEPS = """\
import torch
import torch.nn as nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(6, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
KEPT
for _ in range(4):
    kept.clear()
    x = torch.randn(6, device=device)
    action = select(x, kept)
    reward = 1.0 if action > 0 else -1.0
    loss = -reward * kept[0]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("kept", ("kept", "memory"))
def test_a_function_that_gives_a_number_and_keeps_what_the_loss_is_made_of(
    kept: str,
) -> None:
    setup = (
        "kept = []\ndef select(x, memory):\n"
        "    chosen = torch.distributions.Categorical(logits=model(x))\n"
        f"    action = chosen.sample()\n    {kept}.append(chosen.log_prob(action))\n"
        "    return action.item()\n"
    )
    source = _KEEPS.replace("KEPT\n", setup)
    result = migrate_source(source)
    if result.changed:
        lines = result.output.splitlines()
        (call,) = (i for i, line in enumerate(lines) if "= select(x, kept)" in line)
        assert "with torch.autocast(" in lines[call - 1]


_ACTS = {
    "an int": """\
        if random.random() < 0.1:
            return random.randrange(3)
        with torch.no_grad():
            state = state.reshape(1, 8).to(device)
            return int(self.net(state).argmax(1))
""",
    "the place of the greatest": """\
        with torch.no_grad():
            return self.net(state[None].to(device)).argmax(1)[0]
""",
    "the place that max() tells": """\
        out = self.net(state[None].to(device)).max(1)[1].detach().cpu()
        return out[0]
""",
}
_GREEDY = """\
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
random.seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
class Buffer:
    def __init__(self):
        self.rows = []
    def add(self, state, action, reward):
        self.rows.append((state, action, reward))
    def sample(self):
        states, actions, rewards = zip(*random.sample(self.rows, 4))
        actions = torch.tensor([[int(one)] for one in actions])
        return torch.stack(states), actions, torch.tensor(rewards)
class Agent:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-2)
    def select(self, state):
ACT    def train(self, buffer):
        states, actions, rewards = buffer.sample()
        values = self.net(states.to(device)).gather(1, actions.to(device)).squeeze(1)
        loss = F.smooth_l1_loss(values, rewards.to(device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
agent, buffer = Agent(), Buffer()
state = torch.randn(8)
for t in range(12):
    if t < 2:
        action = random.randrange(3)
    else:
        action = agent.select(state)
    reward = float(t % 3)
    buffer.add(state, action, reward)
    state = torch.randn(8)
    if t > 5:
        agent.train(buffer)
"""


@pytest.mark.parametrize("name", _ACTS)
def test_what_an_integer_was_chosen_by_is_no_part_of_the_loss(name: str) -> None:
    source = _GREEDY.replace("ACT", _ACTS[name])
    result = migrate_source(source)
    assert result.output.count("with torch.autocast(") == 1
    assert "    buffer.add(state, action, reward)" in result.output.splitlines()
    check_runs(source, result.output)


_LABELS = """\
import numpy as np
import torch
import torch.nn as nn
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = [torch.randn(6, 8) for _ in range(4)]
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def labels(net, log):
    found = []
    with torch.no_grad():
        for x in data:
            found.append(net(x.to(device)).float().cpu())
    _, chosen = torch.max(torch.cat(found), 1)
    seen = np.where(np.bincount(chosen.numpy(), minlength=3) > 0)
    seen = seen[0]
    chosen = seen[chosen.numpy() % len(seen)]
    log.write("labels")
    return chosen.astype("int64")
log = open("/dev/null", "w")
for turn in range(8):
    if turn % 4 == 0:
        known = labels(model, log)
        known = torch.from_numpy(known).to(device)
    x = data[turn % 4].to(device)
    loss = nn.functional.cross_entropy(model(x), known[:6])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_labels_that_a_pass_over_the_data_gives_are_no_part_of_the_loss() -> None:
    result = migrate_source(_LABELS)
    assert "        known = labels(model, log)" in result.output.splitlines()
    assert result.output.count("with torch.autocast(") == 1
    check_runs(_LABELS, result.output)


_VALIDATES = """\
import torch
import torch.nn as nn
class Approach:
    def __init__(self, model):
        self.model = model
        self.old = None
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def train(self, task, batches):
        best, kept = 1e9, self.model.state_dict()
        paths = [0, 1]
        for _ in range(2):
            self.epoch(task, batches, paths[0])
            loss = self.check(batches)
            if loss < best:
                best, kept = loss, self.model.state_dict()
                paths[0] = paths[task]
        self.model.load_state_dict(kept)
        self.old = copy.deepcopy(self.model)
    def epoch(self, task, batches, path):
        for x, y in batches:
            x, y = x.to(device), y.to(device)
            out = self.model.forward(x)
            loss = (out - y).pow(2).mean() * (1 + path)
            if task > 0:
                loss = loss + (out - self.old.forward(x)).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            print(loss)
    def check(self, batches):
        return sum((self.model.forward(x.to(device)) - y.to(device)).pow(2).mean().item() for x, y in batches)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
approach = Approach(nn.Linear(8, 1).to(device))
for task in range(2):
    approach.train(task, [(torch.randn(4, 8), torch.randn(4, 1)) for _ in range(3)])
"""


def test_what_only_decides_is_no_part_of_the_loss() -> None:
    """A validation whose result picks a number, or the weights of a model that teaches later."""
    source = "import copy\n" + _VALIDATES
    result = migrate_source(source)
    assert result.output.count("with torch.autocast(") == 1
    assert "            loss = self.check(batches)" in result.output
    check_runs(source, result.output)


_EPISODES = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
class Memory:
    def __init__(self):
        self.kept = []
        self.rewards = []
class Policy(Memory, nn.Module):
    def __init__(self):
        nn.Module.__init__(self)
        Memory.__init__(self)
        self.actor = nn.Linear(8, 2)
        self.critic = nn.Linear(8, 1)
    def forward(self, x):
        return F.softmax(self.actor(x), dim=-1), self.critic(x)
policy = Policy().to(device)
memory = KEEPER
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
def act(state):
    probs, value = policy(state)
    chosen = Categorical(probs)
    action = chosen.sample()
    KEEPS
    return action.item()
def learn():
    loss = 0
    for KEPT, reward in zip(memory.kept, memory.rewards):
        loss = loss + LOSS
    optimizer.zero_grad()
    loss.sum().backward()
    optimizer.step()
    del memory.kept[:], memory.rewards[:]
for episode in range(3):
    for turn in range(4):
        act(torch.randn(1, 8).to(device))
        memory.rewards.append(1.0 + turn)
    learn()
    print(policy.actor.weight.sum().item())
"""
_KEPT = {
    "by the policy": (
        "policy",
        "memory.kept.append(chosen.log_prob(action))",
        "log_prob",
        "-log_prob * reward",
    ),
    "by another object, in pairs": (
        "Memory()",
        "memory.kept.append((chosen.log_prob(action), value))",
        "(log_prob, value)",
        "(value - reward).pow(2) - log_prob * (reward - value.item())",
    ),
    "several at once": (
        "Memory()",
        "memory.kept.extend([value])",
        "value",
        "F.smooth_l1_loss(value, torch.full_like(value, reward))",
    ),
}


@pytest.mark.parametrize("name", _KEPT)
def test_a_region_where_another_object_is_given_what_a_loss_is_made_of(
    name: str,
) -> None:
    keeper, keeps, kept, loss = _KEPT[name]
    source = _EPISODES.replace("KEEPER", keeper).replace("KEEPS", keeps)
    source = source.replace("KEPT", kept).replace("LOSS", loss)
    result = migrate_source(source, path="train.py")
    acting = result.output.split("def act")[1].split("def learn")[0]
    assert acting.count("with torch.autocast(") == 1
    assert "        act(torch" in result.output
    check_runs(source, result.output)


_ACTOR_CRITIC = """\
import torch
import torch.nn as nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
class Learner:
    def __init__(self):
        self.actor = nn.Linear(6, 3).to(device)
        self.critic = nn.Linear(6, 1).to(device)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=0.01)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=0.01)
    def train_critic(self, states, returns):
        error = returns - self.critic(states)
        loss = error.pow(2).mean()
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        return error
    def learn(self, states, actions, returns):
        error = self.train_critic(states, returns)
        error = error.repeat(1, 1)
        taken = torch.log_softmax(self.actor(states), 1).gather(1, actions)
        ADVANTAGE
        loss = -(LEFT * taken).mean()
        self.actor_optimizer.zero_grad()
        loss.backward()
        self.actor_optimizer.step()
        print(loss.item())
learner = Learner()
for _ in range(5):
    states, actions = torch.randn(8, 6).to(device), torch.randint(0, 3, (8, 1)).to(device)
    learner.learn(states, actions, torch.randn(8, 1).to(device))
"""
_ADVANTAGES = {
    "in the loss": ("pass", "error.detach()"),
    "before": ("advantage = (error - error.mean()).detach()", "advantage"),
}


@pytest.mark.parametrize("name", _ADVANTAGES)
def test_what_training_gives_back_is_no_part_of_a_loss_that_takes_it_detached(
    name: str,
) -> None:
    advantage, left = _ADVANTAGES[name]
    source = _ACTOR_CRITIC.replace("ADVANTAGE", advantage).replace("LEFT", left)
    result = migrate_source(source, path="train.py")
    assert result.output.count("with torch.autocast(") == 2
    assert (
        "        error = self.train_critic(states, returns)"
        in result.output.splitlines()
    )
    check_runs(source, result.output)


def test_what_training_gives_back_with_its_gradients_is_one() -> None:
    source = _ACTOR_CRITIC.replace("ADVANTAGE", "pass").replace("LEFT", "error")
    _, actor = migrate_source(source, path="train.py").loops
    assert actor.diagnostic is not None
    assert "trains, too" in actor.diagnostic.message
