"""The operations that few programs need: linear algebra by decomposition, FFT, window and higher special functions.

`import backlight` leaves their files out. They are imported when one of their names is asked for: as an attribute of the
package, of `linalg`, `fft`, `special` or `signal`, or by calling one of the tensor methods below, which stand in until then.
"""

from __future__ import annotations

from importlib import import_module

from ..op import REGISTRY
from ..tensor import Tensor

METHODS = (
    "cholesky cholesky_inverse cholesky_solve det geqrf i0 i0_ igamma igamma_ igammac igammac_ inverse istft logdet lu lu_solve "
    "matrix_exp matrix_power mvlgamma mvlgamma_ orgqr ormqr pinverse qr slogdet stft svd triangular_solve vdot"
).split()


FILES = (
    "bessel decompositions fft gamma gamma_draws householder ldl matrix_functions matrix_norms polynomials probability solve spectrogram windows"
).split()


def load():
    """Imports the files; their declarations replace the stand-ins."""
    for name in FILES:
        import_module(f"{__package__}.{name}")


def publish(namespace, module):
    """Puts the functions that were declared for a module into its namespace."""
    load()
    for name, function in REGISTRY.items():
        where, _, last = name.rpartition(".")
        if where == module:
            namespace[last] = function


def _stand_in(name):
    def method(self, *args, **kwargs):
        load()
        return getattr(self, name)(*args, **kwargs)

    method.__name__ = name
    return method


for _name in METHODS:
    setattr(Tensor, _name, _stand_in(_name))
