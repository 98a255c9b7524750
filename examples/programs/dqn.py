"""A deep Q-network with replay memory and target network on a cart with a pole.

Mnih et al., "Human-level control through deep reinforcement learning", 2015; van Hasselt et al., "Double Q-learning", 2016.
"""

import math
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
from cartpole import CartPole

torch.set_default_dtype(torch.float64)

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return Transition(*zip(*random.sample(self.memory, batch_size)))

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, x):
        return self.layers(x)


def optimize(policy_net, target_net, memory, optimizer, batch_size=64, gamma=0.99):
    batch = memory.sample(batch_size)
    non_final = torch.tensor([s is not None for s in batch.next_state])
    next_states = torch.stack([s for s in batch.next_state if s is not None])
    state, action, reward = torch.stack(batch.state), torch.tensor(batch.action), torch.tensor(batch.reward)
    q = policy_net(state).gather(1, action.unsqueeze(1)).squeeze(1)
    next_values = torch.zeros(batch_size)
    with torch.no_grad():
        best = policy_net(next_states).argmax(1, keepdim=True)
        next_values[non_final] = target_net(next_states).gather(1, best).squeeze(1)
    loss = nn.SmoothL1Loss()(q, reward + gamma * next_values)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 10)
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(17)
    random.seed(17)
    env = CartPole(seed=17)
    policy_net, target_net = DQN(), DQN()
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = torch.optim.AdamW(policy_net.parameters(), lr=2e-3, amsgrad=True)
    memory, steps, losses, lengths = ReplayMemory(2000), 0, [], []
    for episode in range(1, 29):
        state, done = torch.tensor(env.reset()), False
        while not done:
            epsilon = 0.05 + 0.85 * math.exp(-steps / 150)
            steps += 1
            if random.random() < epsilon:
                action = random.randrange(2)
            else:
                with torch.no_grad():
                    action = policy_net(state).argmax().item()
            observation, reward, done = env.step(action)
            next_state = None if done and env.steps < env.limit else torch.tensor(observation)
            memory.push(state, action, next_state, reward)
            state = torch.tensor(observation)
            if len(memory) >= 64:
                losses.append(optimize(policy_net, target_net, memory, optimizer))
                if len(losses) == 1:
                    print(f"first loss {losses[0]:.7f}")
                with torch.no_grad():
                    for target, source in zip(target_net.parameters(), policy_net.parameters()):
                        target.lerp_(source, 0.03)
        lengths.append(env.steps)
        if episode % 7 == 0:
            print(f"episode {episode:2d}  steps {steps}  loss {sum(losses[-50:]) / 50:.6f}  length {sum(lengths[-7:]) / 7:.1f}")


if __name__ == "__main__":
    main()
