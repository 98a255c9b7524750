"""The version of Backlight, and of the PyTorch whose behaviour it follows."""

__version__ = "0.1.0"
torch_version = "2.13.0"
git_version = "unknown"
cuda = None
hip = None
