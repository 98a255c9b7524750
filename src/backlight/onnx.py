"""`torch.onnx`: programs import it beside what they do; to export they need PyTorch."""

from __future__ import annotations

from typing import Any

__all__ = ["export", "is_in_onnx_export"]


def export(*_args: Any, **_options: Any) -> None:
    """Raises: ONNX files hold compiled graphs."""
    raise NotImplementedError(
        "torch.onnx.export writes a compiled graph, which Backlight has none of. torch.save(model.state_dict(), path) writes weights "
        "that PyTorch loads; export there."
    )


def is_in_onnx_export() -> bool:
    """False."""
    return False
