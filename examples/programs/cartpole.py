"""A cart with a pole, for the programs on reinforcement learning: push left or right so that the pole doesn't fall.

Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems", 1983.
"""

import math
import random


class CartPole:
    """step(action) -> (observation, reward, done). An episode ends when the pole falls, or after `limit` steps."""

    def __init__(self, seed, limit=100):
        self.random, self.limit = random.Random(seed), limit

    def reset(self):
        self.state = [self.random.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return list(self.state)

    def step(self, action):
        x, v, angle, spin = self.state
        force = 10.0 if action == 1 else -10.0
        cos, sin = math.cos(angle), math.sin(angle)
        push = (force + 0.05 * spin * spin * sin) / 1.1
        torque = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        acceleration = push - 0.05 * torque * cos / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * acceleration, angle + 0.02 * spin, spin + 0.02 * torque]
        self.steps += 1
        fell = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095
        return list(self.state), 1.0, fell or self.steps >= self.limit
