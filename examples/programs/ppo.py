"""Proximal policy optimization on a cart with a pole.

Schulman et al., "Proximal policy optimization algorithms", 2017.
"""

import torch
import torch.nn as nn
from cartpole import CartPole
from torch.distributions.categorical import Categorical

torch.set_default_dtype(torch.float64)


def layer_init(layer, std=2**0.5, bias_const=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(4, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 1), std=1.0),
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(4, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 2), std=0.01),
        )

    def get_value(self, x):
        return self.critic(x).flatten()

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.get_value(x)


def main():
    torch.manual_seed(16)
    num_envs, num_steps, updates = 4, 64, 12
    gamma, lam, clip, epochs, minibatch = 0.99, 0.95, 0.2, 3, 64
    envs = [CartPole(seed=100 + i) for i in range(num_envs)]
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    next_obs, next_done = torch.tensor([e.reset() for e in envs]), torch.zeros(num_envs)
    lengths = []
    for update in range(1, updates + 1):
        optimizer.param_groups[0]["lr"] = (1.0 - (update - 1.0) / updates) * 2.5e-3
        obs = torch.zeros(num_steps, num_envs, 4)
        actions, logprobs, rewards, dones, values = torch.zeros(5, num_steps, num_envs).unbind(0)
        for step in range(num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprobs[step], _, values[step] = agent.get_action_and_value(next_obs)
            actions[step] = action
            for i, env in enumerate(envs):
                state, reward, done = env.step(action[i].item())
                if done:
                    lengths.append(env.steps)
                    state = env.reset()
                rewards[step, i], next_done[i] = reward, float(done)
                next_obs[i] = torch.tensor(state)

        with torch.no_grad():
            next_value = agent.get_value(next_obs)
            advantages, lastgaelam = torch.zeros_like(rewards), 0
            for t in reversed(range(num_steps)):
                nonterminal = 1.0 - (next_done if t == num_steps - 1 else dones[t + 1])
                nextvalues = next_value if t == num_steps - 1 else values[t + 1]
                delta = rewards[t] + gamma * nextvalues * nonterminal - values[t]
                advantages[t] = lastgaelam = delta + gamma * lam * nonterminal * lastgaelam
            returns = advantages + values

        b_obs, b_actions = obs.reshape(-1, 4), actions.reshape(-1).long()
        b_logprobs, b_advantages, b_returns, b_values = (t.reshape(-1) for t in (logprobs, advantages, returns, values))
        clipfracs = []
        for _ in range(epochs):
            for index in torch.randperm(num_steps * num_envs).split(minibatch):
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[index], b_actions[index])
                ratio = (newlogprob - b_logprobs[index]).exp()
                clipfracs.append(((ratio - 1.0).abs() > clip).double().mean().item())
                adv = b_advantages[index]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                pg_loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 1 - clip, 1 + clip)).mean()
                clipped = b_values[index] + torch.clamp(newvalue - b_values[index], -clip, clip)
                v_loss = 0.5 * torch.max((newvalue - b_returns[index]) ** 2, (clipped - b_returns[index]) ** 2).mean()
                loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        if update == 1 or update % 3 == 0:
            recent = sum(lengths[-10:]) / 10
            print(
                f"update {update:2d}  policy {pg_loss.item():.7f}  value {v_loss.item():.6f}"
                f"  entropy {entropy.mean().item():.6f}  clipped {sum(clipfracs) / len(clipfracs):.3f}  length {recent}"
            )


if __name__ == "__main__":
    main()
