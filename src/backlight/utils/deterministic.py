"""`torch.utils.deterministic`: a setting that PyTorch has; all operations are deterministic here."""

fill_uninitialized_memory = True
