"""Policy gradients by REINFORCE on a cart with a pole.

Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", 1992.
"""

import torch
import torch.nn as nn
from cartpole import CartPole
from torch.distributions import Categorical

torch.set_default_dtype(torch.float64)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 64)
        self.affine2 = nn.Linear(64, 2)

    def forward(self, x):
        return self.affine2(torch.relu(self.affine1(x)))


def run_episode(env, policy):
    log_probs, rewards, state, done = [], [], env.reset(), False
    while not done:
        m = Categorical(logits=policy(torch.tensor(state)))
        action = m.sample()
        log_probs.append(m.log_prob(action))
        state, reward, done = env.step(action.item())
        rewards.append(reward)
    return log_probs, rewards


def returns_of(rewards, gamma=0.99):
    returns, R = [], 0.0
    for r in reversed(rewards):
        R = r + gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    return (returns - returns.mean()) / (returns.std() + 1e-8)


def main():
    torch.manual_seed(543)
    env = CartPole(seed=543)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    running = 10.0
    for episode in range(1, 101):
        log_probs, rewards = run_episode(env, policy)
        loss = -(torch.stack(log_probs) * returns_of(rewards)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running = 0.05 * len(rewards) + 0.95 * running
        if episode == 1 or episode % 20 == 0:
            print(f"episode {episode:3d}  length {len(rewards):3d}  loss {loss.item():.7f}  average length {running:.2f}")
    policy.eval()
    lengths = [len(run_episode(env, policy)[1]) for _ in range(5)]
    print("lengths after training", lengths)


if __name__ == "__main__":
    main()
