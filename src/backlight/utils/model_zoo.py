"""`torch.utils.model_zoo`: the older name of `torch.hub`'s downloads, which models' files import."""

from __future__ import annotations

from ..hub import load_state_dict_from_url

__all__ = ["load_url"]

load_url = load_state_dict_from_url
