"""Linear algebra and special functions against PyTorch: values, two gradients, printed results, errors, names of nodes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch as pytorch

import backlight as torch

RANDOM = np.random.default_rng(0)
REAL, COMPLEX = RANDOM.normal(size=(2, 4, 4)), RANDOM.normal(size=(2, 4, 4)) + 1j * RANDOM.normal(size=(2, 4, 4))


def hermitian(x):
    return x + x.mH


def positive(x):
    return x @ x.mH + 1.0


def factor(package, x):
    """A well-conditioned lower triangular matrix that depends on x."""
    return x.tril(-1) * 0.3 + package.eye(4, dtype=x.dtype) * 2


PROGRAMS = {  # name: (package, matrix) -> tensors whose values must agree (free of arbitrary signs and phases)
    "cholesky": lambda p, x: p.linalg.cholesky(positive(x)),
    "cholesky upper": lambda p, x: p.linalg.cholesky(positive(x), upper=True),
    "cholesky_solve": lambda p, x: p.cholesky_solve(x, factor(p, x)),
    "cholesky_inverse": lambda p, x: p.cholesky_inverse(factor(p, x)),
    "qr": lambda p, x: p.linalg.qr(x),
    "qr tall": lambda p, x: p.linalg.qr(x[..., :2]),
    "qr wide": lambda p, x: p.linalg.qr(x[..., :2, :]),
    "svd": lambda p, x: [f(p.linalg.svd(x, full_matrices=False)) for f in (lambda r: r.S, lambda r: r.U.abs(), lambda r: r.Vh.abs())],
    "svd tall": lambda p, x: [f(p.svd(x[..., :2])) for f in (lambda r: r.S, lambda r: r.U.abs(), lambda r: r.V.abs())],
    "svdvals": lambda p, x: p.linalg.svdvals(x),
    "eigh": lambda p, x: [f(p.linalg.eigh(hermitian(x))) for f in (lambda r: r[0], lambda r: r[1].abs())],
    "eigvalsh": lambda p, x: p.linalg.eigvalsh(hermitian(x)),
    "eig": lambda p, x: [p.linalg.eig(x)[0].abs().sum(), p.linalg.eig(x)[1].abs().sum()],
    "det": lambda p, x: p.linalg.det(x),
    "slogdet": lambda p, x: p.linalg.slogdet(x),
    "logdet": lambda p, x: p.logdet(positive(x)),
    "inv": lambda p, x: p.linalg.inv(x),
    "solve": lambda p, x: p.linalg.solve(x, x.mT),
    "solve vector": lambda p, x: p.linalg.solve(x, x[:, 0]),
    "solve right": lambda p, x: p.linalg.solve(x, x.mT, left=False),
    "solve_triangular": lambda p, x: p.linalg.solve_triangular(factor(p, x), x, upper=False),
    "triangular_solve": lambda p, x: p.triangular_solve(x, factor(p, x), upper=False, transpose=True),
    "lu_factor": lambda p, x: p.linalg.lu_factor(x)[0],
    "lu": lambda p, x: p.linalg.lu(x),
    "lu tall": lambda p, x: p.linalg.lu(x[..., :2]),
    "lu wide": lambda p, x: p.linalg.lu(x[..., :2, :]),
    "lu_solve": lambda p, x: p.linalg.lu_solve(*p.linalg.lu_factor(x), x.mT, adjoint=True),
    "lu_unpack": lambda p, x: p.lu_unpack(*p.linalg.lu_factor(x)),
    "pinv": lambda p, x: p.linalg.pinv(x[..., :2]),
    "lstsq": lambda p, x: p.linalg.lstsq(x[..., :3], x, driver="gelsd")[:2],
    "matrix_exp": lambda p, x: p.matrix_exp(x * 0.5),
    "matrix_power": lambda p, x: p.matrix_power(x, -3),
    "householder_product": lambda p, x: p.linalg.householder_product(x[..., :3], x[..., 0, :3]),
    "ormqr": lambda p, x: p.ormqr(x[..., :3], x[..., 0, :3], x, False, True),
    "matrix_norm 2": lambda p, x: p.linalg.matrix_norm(x, 2),
    "matrix_norm nuc": lambda p, x: p.linalg.matrix_norm(x, "nuc"),
    "matrix_norm 1": lambda p, x: p.linalg.matrix_norm(x, 1),
    "cond": lambda p, x: [p.linalg.cond(x), p.linalg.cond(x, "nuc")],
    "multi_dot": lambda p, x: p.linalg.multi_dot([x[0], x[1], x[0, 0]]),
    "tensorinv": lambda p, x: p.linalg.tensorinv(x[0].reshape(4, 2, 2), 1),
    "tensorsolve": lambda p, x: p.linalg.tensorsolve(x[0].reshape(2, 2, 4), x[1, :2, :2]),
    "vander": lambda p, x: p.linalg.vander(x[..., 0], N=3),
    "vecdot": lambda p, x: p.linalg.vecdot(x, x.mT),
    "vdot": lambda p, x: p.vdot(x[0, 0], x[1, 0]),
}  # fmt: skip


def weighted(package, outputs):
    """One real number that depends on everything, with weights that a plain sum lacks."""
    outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    total = 0
    for x in outputs:
        if x.requires_grad:
            flat = x.reshape(-1)
            weights = np.cos(np.arange(flat.numel()))
            if x.is_complex():
                flat = package.view_as_real(flat.resolve_conj()) @ package.tensor([1.0, 0.5], dtype=package.float64)
            total = total + (flat * package.tensor(weights)).sum()
    return total


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize("values", [REAL, COMPLEX], ids=["real", "complex"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_two_gradients(name, values):
    results = []
    for package in (torch, pytorch):
        x = package.tensor(values, requires_grad=True)
        outputs = PROGRAMS[name](package, x)
        (g,) = package.autograd.grad(weighted(package, outputs), x, create_graph=True)
        (second,) = package.autograd.grad(weighted(package, g), x)
        outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
        force = {"force": True} if package is pytorch else {}
        results.append([t.detach().resolve_conj().numpy(**force) for t in (*outputs, g, second)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-7 * max(1, np.abs(theirs).max()))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_singular_determinants(rank):
    values = REAL[0, :, :rank] @ REAL[1, :rank]
    results = []
    for package in (torch, pytorch):
        x = package.tensor(values, requires_grad=True)
        results.append(package.autograd.grad(package.linalg.det(x), x)[0].numpy())
    np.testing.assert_allclose(*results, atol=1e-10)


@pytest.mark.parametrize("is_hermitian", [False, True])
def test_ldl(is_hermitian):
    values = hermitian(pytorch.tensor(COMPLEX if is_hermitian else REAL)).numpy()
    ours = torch.linalg.ldl_factor(torch.tensor(values), hermitian=is_hermitian)
    theirs = pytorch.linalg.ldl_factor(pytorch.tensor(values), hermitian=is_hermitian)
    assert ours.pivots.tolist() == theirs.pivots.tolist()
    np.testing.assert_allclose(ours.LD.numpy(), theirs.LD.numpy(), atol=1e-12)
    x = torch.linalg.ldl_solve(*ours, torch.tensor(values), hermitian=is_hermitian)
    np.testing.assert_allclose(x.numpy(), np.broadcast_to(np.eye(4), values.shape), atol=1e-10)
    a = torch.tensor(values, requires_grad=True)
    with pytest.raises(RuntimeError, match="derivative for aten::linalg_ldl_factor_ex is not implemented"):
        torch.linalg.ldl_factor(a, hermitian=is_hermitian).LD.sum().abs().backward()


def test_low_rank_draws_pytorchs_numbers():
    pytorch.manual_seed(0), torch.manual_seed(0)
    for name in ("svd_lowrank", "pca_lowrank"):
        ours, theirs = (getattr(p, name)(p.tensor(REAL[0]), q=2) for p in (torch, pytorch))
        np.testing.assert_allclose(ours[1].numpy(), theirs[1].numpy(), atol=1e-12)


RESULTS = """
linalg.eigh(a) linalg.slogdet(a) linalg.svd(a) linalg.qr(a) linalg.cholesky_ex(a) linalg.inv_ex(a) linalg.solve_ex(a,a)
linalg.lu_factor(a) linalg.lu(a) linalg.lstsq(a,a) slogdet(a) svd(a) qr(a) triangular_solve(a,a) lu(a,get_infos=True)
linalg.cholesky(a) linalg.inv(a) linalg.det(a) linalg.matrix_norm(a,2) linalg.cond(a) logdet(a) cholesky(a) matrix_exp(a*0)
""".split()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", RESULTS)
def test_results_print_as_in_pytorch(call):
    texts = []
    for package in (torch, pytorch):
        a = package.tensor([[4.0, 0.0], [0.0, 2.0]], requires_grad=True)
        texts.append(repr(eval(f"p.{call}", {"p": package, "a": a})))
    assert texts[0].replace("-0.", " 0.") == texts[1].replace("-0.", " 0.")


ERRORS = """
linalg.cholesky(vector) linalg.cholesky(wide) linalg.cholesky(zeros) linalg.cholesky(batch) linalg.cholesky(integer)
linalg.cholesky(half) linalg.qr(vector) linalg.qr(square,'x') linalg.svd(nan) linalg.eigh(square,'X') linalg.eig(wide)
linalg.det(wide) linalg.slogdet(half) linalg.inv(zeros) linalg.inv(batch) linalg.solve(zeros,square) linalg.solve(square,wide)
linalg.solve(square,double) linalg.solve_triangular(square,wide,upper=True) linalg.lu_factor(zeros) linalg.lu_factor(vector)
linalg.lu(square,pivot=False) linalg.lstsq(square,wide) linalg.lstsq(square,square,driver='x') linalg.matrix_power(square,0.5)
linalg.matrix_power(zeros,-1) linalg.matrix_norm(square,3) linalg.norm(batch,2) linalg.cond(square,'x') linalg.multi_dot([square])
linalg.multi_dot([square,wide]) linalg.vander(vector,N=1) linalg.tensorinv(square,0) linalg.tensorinv(wide,1)
linalg.pinv(vector) linalg.matrix_rank(integer) linalg.householder_product(wide,vector) cholesky_solve(vector,square)
lu_unpack(square,vector) linalg.ldl_factor(wide) geqrf(vector) linalg.vecdot(integer,integer) vdot(vector,square)
special.i0(complex) special.ndtri(half) igamma(integer,integer) mvlgamma(vector,0) special.entr(2)
linalg.cholesky(2) linalg.solve(square,2)
""".split()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", ERRORS)
def test_errors_are_pytorchs(call):
    raised = []
    for package in (torch, pytorch):
        names = {
            "p": package, "vector": package.ones(3), "wide": package.ones(2, 3), "zeros": package.zeros(3, 3),
            "square": package.eye(3), "batch": package.zeros(2, 3, 3), "integer": package.ones(3, 3, dtype=package.int64),
            "half": package.ones(3, 3, dtype=package.float16), "double": package.eye(3, dtype=package.float64),
            "nan": package.full((3, 3), float("nan")), "complex": package.ones(3, dtype=package.complex64),
        }  # fmt: skip
        with pytest.raises(Exception) as error:
            eval(f"p.{call}", names)
        raised.append((error.type.__name__, str(error.value).splitlines()[0]))
    assert raised[0] == raised[1]


def test_phases_of_complex_vectors():
    for package in (torch, pytorch):
        x = package.tensor(COMPLEX[0], requires_grad=True)
        with pytest.raises(RuntimeError, match="up to multiplication by e"):
            package.linalg.svd(x)[0].real.sum().backward()


SPECIAL = {
    **dict.fromkeys("bessel_j0 bessel_j1 airy_ai spherical_bessel_j0 i0e i1e erfcx log_ndtr ndtr".split(), (-30, 30)),
    **dict.fromkeys("i0 i1 modified_bessel_i0 modified_bessel_i1".split(), (-60, 60)),
    **dict.fromkeys("bessel_y0 bessel_y1 scaled_modified_bessel_k0 scaled_modified_bessel_k1".split(), (0.01, 60)),
    **dict.fromkeys("modified_bessel_k0 modified_bessel_k1 entr".split(), (0.01, 60)),
    "ndtri": (0.0, 1.0),
}
INACCURATE = ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai")  # in PyTorch: up to 1e-6 (airy_ai 3e-6)


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name):
    x = np.linspace(*SPECIAL[name], 1001)
    ours, theirs = (getattr(p.special, name)(p.tensor(x)).numpy() for p in (torch, pytorch))
    tolerance = {"atol": 5e-6} if name in INACCURATE else {"rtol": 2e-12, "atol": 1e-15}
    np.testing.assert_allclose(ours, theirs, **tolerance)


def test_bessel_functions_satisfy_their_wronskian():
    x = torch.linspace(0.1, 200, 5001, dtype=torch.float64)
    s = torch.special
    difference = s.bessel_j1(x) * s.bessel_y0(x) - s.bessel_j0(x) * s.bessel_y1(x) - 2 / (torch.pi * x)
    assert difference.abs().max() < 1e-14
    difference = s.i0e(x) * s.scaled_modified_bessel_k1(x) + s.i1e(x) * s.scaled_modified_bessel_k0(x) - 1 / x
    assert (difference * x).abs().max() < 1e-14


@pytest.mark.parametrize("scale", [1, 10, 1000])
def test_incomplete_gamma_functions(scale):
    a, x = RANDOM.random((2, 500)) * scale
    for name in ("igamma", "igammac"):
        ours, theirs = (getattr(p, name)(p.tensor(a), p.tensor(x)).numpy() for p in (torch, pytorch))
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_zeta_and_polynomials():
    s, q, n = RANDOM.random(300) * 20 + 1, RANDOM.random(300) * 10 + 0.01, RANDOM.integers(-1, 12, 300)
    x = RANDOM.random(300) * 4 - 2
    calls = {"zeta": (s, q)}
    for kind in "tuvw":
        calls[f"chebyshev_polynomial_{kind}"] = calls[f"shifted_chebyshev_polynomial_{kind}"] = (x, n)
    for name in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"):
        calls[name] = (x, n)
    for name, arguments in calls.items():
        ours, theirs = (getattr(p.special, name)(*(p.tensor(v) for v in arguments)).numpy() for p in (torch, pytorch))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9, err_msg=name)


def test_methods_stand_in_until_their_files_are_imported():
    """The list of methods that exist before the files are imported is complete, and nothing is imported too early."""
    program = """
import sys, backlight
early = set(dir(backlight.Tensor))
assert "backlight.ops.decompositions" not in sys.modules and "backlight.ops.fft" not in sys.modules
assert backlight.eye(2).det().item() == 1
assert set(dir(backlight.Tensor)) == early, set(dir(backlight.Tensor)) ^ early
"""
    subprocess.run([sys.executable, "-c", program], check=True)
