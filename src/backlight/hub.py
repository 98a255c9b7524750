"""`torch.hub`: programs import it beside what they do. It downloads code and weights, and runs the code; Backlight doesn't."""

from __future__ import annotations

from typing import Any

__all__ = ["download_url_to_file", "load", "load_state_dict_from_url"]


def _refuse(what: str) -> None:
    raise NotImplementedError(
        f"torch.hub.{what}: Backlight downloads nothing and runs no code from elsewhere. Download the weights yourself and read them "
        "with torch.load"
    )


def load(repo_or_dir: str, model: str, *_args: Any, **_options: Any) -> Any:
    """Raises: it would download code and run it."""
    _refuse(f"load({repo_or_dir!r}, {model!r})")


def load_state_dict_from_url(url: str, *_args: Any, **_options: Any) -> Any:
    """Raises: it would download a file."""
    _refuse(f"load_state_dict_from_url({url!r})")


def download_url_to_file(url: str, dst: str, *_args: Any, **_options: Any) -> None:
    """Raises: it would download a file."""
    _refuse(f"download_url_to_file({url!r}, {dst!r})")
