"""An actor and a critic with shared features on a cart with a pole, in several environments at once.

Mnih et al., "Asynchronous methods for deep reinforcement learning", 2016 (A2C); Schulman et al., "High-dimensional
continuous control using generalized advantage estimation", 2016.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from cartpole import CartPole
from torch.distributions import Categorical

torch.set_default_dtype(torch.float64)


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.actor = nn.Linear(hidden, 2)
        self.critic = nn.Linear(hidden, 1)
        nn.init.orthogonal_(self.actor.weight, gain=0.01)

    def forward(self, x):
        h = self.body(x)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


def advantages(rewards, values, dones, last, gamma=0.99, lam=0.95):
    out, carry = torch.zeros_like(rewards), torch.zeros_like(last)
    for t in reversed(range(len(rewards))):
        following = last if t == len(rewards) - 1 else values[t + 1]
        delta = rewards[t] + gamma * following * (1 - dones[t]) - values[t]
        carry = delta + gamma * lam * (1 - dones[t]) * carry
        out[t] = carry
    return out


def main():
    torch.manual_seed(15)
    envs = [CartPole(seed=i) for i in range(8)]
    states = torch.tensor([env.reset() for env in envs])
    model = ActorCritic()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3, alpha=0.99, eps=1e-5)
    finished = []
    for update in range(1, 61):
        log_probs, values, rewards, dones, entropies = [], [], [], [], []
        for _ in range(16):
            policy, value = model(states)
            actions = policy.sample()
            results = [env.step(a) for env, a in zip(envs, actions.tolist())]
            for i, (_, _, done) in enumerate(results):
                if done:
                    finished.append(envs[i].steps)
            states = torch.tensor([env.reset() if done else s for env, (s, _, done) in zip(envs, results)])
            log_probs.append(policy.log_prob(actions))
            entropies.append(policy.entropy())
            values.append(value)
            rewards.append(torch.tensor([r for _, r, _ in results]))
            dones.append(torch.tensor([float(d) for _, _, d in results]))
        with torch.no_grad():
            _, last = model(states)
        values = torch.stack(values)
        gae = advantages(torch.stack(rewards), values.detach(), torch.stack(dones), last)
        actor_loss = -(torch.stack(log_probs) * (gae - gae.mean()) / (gae.std() + 1e-8)).mean()
        critic_loss = F.smooth_l1_loss(values, gae + values.detach())
        loss = actor_loss + 0.5 * critic_loss - 0.01 * torch.stack(entropies).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if update == 1 or update % 15 == 0:
            recent = finished[-20:]
            print(
                f"update {update:2d}  loss {loss.item():.7f}  gradient norm {norm.item():.5f}"
                f"  episodes {len(finished)}  recent length {sum(recent) / max(len(recent), 1):.1f}"
            )


if __name__ == "__main__":
    main()
