"""The layers under PyTorch's module paths: `torch.nn.modules.loss.MSELoss` is `torch.nn.MSELoss`."""

import sys

from .. import (
    activation,
    adaptive,
    attention,
    conv,
    distance,
    dropout,
    lazy,
    linear,
    loss,
    module,
    padding,
    pooling,
    sizes,
    sparse,
    transformer,
)
from .. import containers as container
from .. import norm as batchnorm
from .. import norm as instancenorm
from .. import norm as normalization
from .. import recurrent as rnn
from .. import shape as channelshuffle
from .. import shape as flatten
from .. import shape as fold
from .. import shape as pixelshuffle
from .. import shape as upsampling

activation.MultiheadAttention = attention.MultiheadAttention  # pyright: ignore  (PyTorch has it in this file)
for _name, _module in {
    "activation": activation,
    "adaptive": adaptive,
    "batchnorm": batchnorm,
    "channelshuffle": channelshuffle,
    "container": container,
    "conv": conv,
    "distance": distance,
    "dropout": dropout,
    "flatten": flatten,
    "fold": fold,
    "instancenorm": instancenorm,
    "lazy": lazy,
    "linear": linear,
    "loss": loss,
    "module": module,
    "normalization": normalization,
    "padding": padding,
    "pixelshuffle": pixelshuffle,
    "pooling": pooling,
    "rnn": rnn,
    "sparse": sparse,
    "transformer": transformer,
    "upsampling": upsampling,
    "utils": sizes,
}.items():
    sys.modules[f"{__name__}.{_name}"] = _module


def __getattr__(name: str):
    from ... import nn

    return getattr(nn, name)
