"""AdaptiveLogSoftmaxWithLoss: softmax over very many classes, of which few are frequent."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from .. import argmax
from . import functional as F
from .containers import ModuleList, Sequential
from .linear import Linear
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..tensor import Tensor

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class ASMoutput(NamedTuple):
    """The log probability of each sample's target, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


ASMoutput.__name__ = "_ASMoutput"


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log softmax over `n_classes` classes sorted by falling frequency, in clusters (Grave et al. 2016).

    The head knows the classes below `cutoffs[0]` and one entry per further cluster; cluster i projects to in_features /
    div_value**(i + 1) first. input (N, in_features) or (in_features), target (N) or () -> (output, loss). Differentiable in input
    and parameters.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        increasing = all(a < b for a, b in itertools.pairwise(cutoffs))
        if not increasing or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1 or any(int(c) != c for c in cutoffs):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is "
                "between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i, (start, stop) in enumerate(itertools.pairwise(self.cutoffs)):
            hidden = int(in_features // (div_value ** (i + 1)))
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, device=device, dtype=dtype),
                    Linear(hidden, stop - start, bias=False, device=device, dtype=dtype),
                )
            )

    def reset_parameters(self) -> None:
        """Draws new parameters."""
        self.head.reset_parameters()
        for projection in self.tail:
            for layer in projection.children():
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> ASMoutput:
        if target_.dim() > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if target_.dim() == 1 and input_.size(0) != target_.size(0):
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if input_.dim() != target_.dim() + 1:
            raise RuntimeError(
                f"{target_.dim()}D target tensor expects {target_.dim() + 1}D input tensors, but found inputs with size "
                f"{input_.size()}"
            )
        batched = target_.dim() > 0
        input, target = (input_, target_) if batched else (input_.unsqueeze(0), target_.unsqueeze(0))
        if ((target < 0) | (target >= self.n_classes)).any():
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{target.min().item()}, "
                f"{target.max().item()}] were found. "
            )
        output = input.new_zeros(target.size(0))
        in_head = target.clone()  # the target's column in the head: its own, or that of its cluster
        for i, (start, stop) in enumerate(itertools.pairwise(self.cutoffs)):
            rows = ((target >= start) & (target < stop)).nonzero().squeeze(1)
            if not rows.numel():
                continue
            in_head.index_fill_(0, rows, self.shortlist_size + i)
            log_probs = F.log_softmax(self.tail[i](input.index_select(0, rows)), dim=1)
            of_target = log_probs.gather(1, (target.index_select(0, rows) - start).unsqueeze(1))
            output.index_copy_(0, rows, of_target.squeeze(1))
        head = F.log_softmax(self.head(input), dim=1)
        output += head.gather(1, in_head.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return ASMoutput(output if batched else output.squeeze(0), loss)

    def _full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        out = input.new_empty((head_output.size(0), self.n_classes))
        head = F.log_softmax(head_output, dim=1)
        out[:, : self.shortlist_size] = head[:, : self.shortlist_size]
        for i, (start, stop) in enumerate(itertools.pairwise(self.cutoffs)):
            cluster = F.log_softmax(self.tail[i](input), dim=1)
            out[:, start:stop] = cluster + head[:, self.shortlist_size + i].unsqueeze(1)
        return out

    def log_prob(self, input: Tensor) -> Tensor:
        """The log probabilities of all classes: (N, in_features) -> (N, n_classes)."""
        return self._full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The class with the highest probability: (N, in_features) -> (N,)."""
        head_output = self.head(input)
        output = argmax(head_output, dim=1)
        beyond = output >= self.shortlist_size
        if beyond.any():  # only these need the clusters
            output[beyond] = argmax(self._full_log_prob(input[beyond], head_output[beyond]), dim=1)
        return output
