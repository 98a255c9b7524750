"""Learning rate schedules: each sets the learning rates of an optimizer's groups, step by step.

| file | what is there |
| --- | --- |
| `scheduler.py` | `LRScheduler`: counting steps, warnings, state_dict; what schedules share |
| `decay.py` | schedules that go one way: `StepLR`, `LambdaLR`, `ExponentialLR`, `CosineAnnealingLR`, ... |
| `cycles.py` | `CyclicLR`, `OneCycleLR`, `CosineAnnealingWarmRestarts` |
| `plateau.py` | `ReduceLROnPlateau` |
| `composed.py` | `SequentialLR`, `ChainedScheduler` |
"""

from .composed import ChainedScheduler, SequentialLR
from .cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from .decay import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from .plateau import ReduceLROnPlateau
from .scheduler import EPOCH_DEPRECATION_WARNING, LRScheduler, _LRScheduler

__all__ = [
    "EPOCH_DEPRECATION_WARNING",
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
    "_LRScheduler",
]
