"""`torch.utils.tensorboard.SummaryWriter`: tensorboardX's writer, which knows Backlight's tensors.

Needs the extra: pip install "backlight[tensorboard]".
"""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor

try:
    import tensorboardX as _tensorboardX
except ImportError:
    raise ModuleNotFoundError(
        "torch.utils.tensorboard writes with tensorboardX, which isn't installed: pip install 'backlight[tensorboard]'",
        name="tensorboardX",
    ) from None

__all__ = ["SummaryWriter"]


def _plain(value: Any) -> Any:
    """Tensors in arguments as arrays, one-element tensors as numbers."""
    if isinstance(value, Tensor):
        array = value.detach().float().numpy() if value.dtype.name == "bfloat16" else value.detach().numpy()
        return array.item() if array.ndim == 0 else array
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    return value


class SummaryWriter(_tensorboardX.SummaryWriter):
    """Writes event files for TensorBoard: add_scalar, add_scalars, add_histogram, add_image, add_text, add_hparams, ..."""

    def __init__(
        self,
        log_dir: str | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        super().__init__(
            logdir=log_dir,
            comment=comment,
            purge_step=purge_step,
            max_queue=max_queue,
            flush_secs=flush_secs,
            filename_suffix=filename_suffix,
        )
        self.log_dir = self.logdir

    def get_logdir(self) -> str:
        """The folder of the event files."""
        return self.logdir

    def add_graph(self, model: Any, *_args: Any, **_options: Any) -> None:
        """Raises: TensorBoard's graphs are those of TorchScript."""
        raise NotImplementedError(
            f"add_graph({type(model).__name__}): TensorBoard shows TorchScript's graphs, which Backlight has none of. "
            "`backlight trace program.py` shows the graph of a backward pass."
        )


def _taking_tensors(name: str):
    method = getattr(_tensorboardX.SummaryWriter, name)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return method(self, *map(_plain, args), **{key: _plain(value) for key, value in kwargs.items()})

    call.__name__, call.__doc__ = name, method.__doc__
    return call


for (
    _name
) in """add_scalar add_scalars add_histogram add_histogram_raw add_image add_images add_image_with_boxes add_figure add_video
add_audio add_text add_embedding add_pr_curve add_pr_curve_raw add_mesh add_hparams add_custom_scalars""".split():
    if hasattr(_tensorboardX.SummaryWriter, _name):
        setattr(SummaryWriter, _name, _taking_tensors(_name))
