"""The inspector: a record of what backward passes did, and ways to show it.

>>> import backlight as torch
>>> x = torch.tensor([1., 2.], requires_grad=True)
>>> with torch.inspect.record() as record:
...     (x * x).sum().backward()
>>> [step.node for step in record.passes[0].steps]
['SumBackward0', 'MulBackward0', 'AccumulateGrad']
"""

from .record import Gradient, ParameterGradient, Pass, Record, Site, Step, record

__all__ = ["Gradient", "ParameterGradient", "Pass", "Record", "Site", "Step", "record"]
