"""Every public name of `torch`, `torch.Tensor`, `torch.nn.functional` and `torch.masked` is here or in the table of what is left out."""

from __future__ import annotations

import numpy as np
import pytest

import backlight

torch = pytest.importorskip("torch")
from public_names import PLACES, names_of  # noqa: E402

import backlight.nn.functional  # noqa: E402
from backlight.compatibility import LEFT_OUT, PARTLY  # noqa: E402


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", PLACES)
def test_every_name_is_here_or_left_out(place):
    public, missing = names_of(place)
    assert sorted(missing - LEFT_OUT.get(place, {}).keys()) == [], "neither here nor in backlight/compatibility.py"
    assert sorted(LEFT_OUT.get(place, {}).keys() - missing) == [], (
        "in backlight/compatibility.py, but here (or PyTorch doesn't have it)"
    )
    assert sorted(PARTLY.get(place, {}).keys() - (public - missing)) == [], (
        "partly here, says backlight/compatibility.py, but it isn't"
    )


@pytest.mark.filterwarnings("ignore")
def test_most_of_what_programs_use_is_here():
    counts = {place: names_of(place) for place in PLACES}
    wanted = ("torch.nn", "torch.nn.functional", "torch.optim", "torch.utils.data", "torch.distributions")
    public, missing = (sum(len(counts[place][i]) for place in wanted) for i in (0, 1))
    assert 1 - missing / public > 0.9
    public, missing = counts["torch.Tensor"]
    assert 1 - len(missing) / len(public) > 0.85


def test_masked_has_the_functions_of_pytorch():
    import backlight.masked

    theirs = {n for n in dir(torch.masked) if not n.startswith("_") and "masked" not in n.lower()}
    assert theirs == set(backlight.masked.__all__)


def test_named_results_print_as_in_pytorch():
    for name, args in (
        ("max", (1,)),
        ("sort", ()),
        ("topk", (1,)),
        ("frexp", ()),
        ("median", (1,)),
        ("aminmax", ()),
        ("nanmedian", (0,)),
    ):
        data = [[1.0, 2.0], [4.0, 3.0]]
        assert repr(getattr(backlight, name)(backlight.tensor(data), *args)) == repr(
            getattr(torch, name)(torch.tensor(data), *args)
        )


@pytest.mark.parametrize("P", (torch, backlight), ids=("torch", "backlight"))
class TestOut:
    """The rules of `out=`, the same in both packages."""

    def test_an_empty_tensor_is_resized_without_a_word(self, P, recwarn):
        out = P.empty(0)
        assert P.index_select(P.tensor([[1.0, 2.0]]), 0, P.tensor([0, 0]), out=out) is out
        assert out.tolist() == [[1.0, 2.0], [1.0, 2.0]] and not recwarn.list

    def test_another_shape_is_resized_with_a_warning(self, P):
        out = P.empty(3)
        with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
            P.clamp_min(P.tensor([1.0, 5.0]), 2, out=out)
        assert out.tolist() == [2.0, 5.0]

    def test_strides_stay(self, P):
        out = P.zeros(2, 2).t()
        P.triu(P.tensor([[1.0, 2.0], [3.0, 4.0]]), out=out)
        assert out.tolist() == [[1.0, 2.0], [0.0, 4.0]] and out.stride() == (1, 2)

    def test_types_that_hold_the_result_will_do_for_arithmetic(self, P):
        out = P.empty(2, dtype=P.float64)
        assert P.add(P.tensor([1.0, 2.0]), 1, out=out).tolist() == [2.0, 3.0]
        with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
            P.add(P.tensor([1.0, 2.0]), 1, out=P.empty(2, dtype=P.int64))

    def test_the_type_must_be_the_results_for_what_moves_elements(self, P):
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float, but got double instead"):
            P.gather(P.tensor([1.0, 2.0]), 0, P.tensor([1]), out=P.empty(1, dtype=P.float64))

    def test_no_gradient_flows_through_out(self, P):
        x = P.tensor([1.0, 2.0], requires_grad=True)
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            P.hstack([x, x], out=P.empty(4))

    def test_an_expanded_tensor_is_refused(self, P):
        with pytest.raises(
            RuntimeError, match="more than one element of the written-to tensor refers to a single memory location"
        ):
            P.add(P.ones(2), 1, out=P.zeros(1).expand(2))

    def test_pairs_take_pairs(self, P):
        values, indices = P.empty(0), P.empty(0, dtype=P.int64)
        result = P.kthvalue(P.tensor([3.0, 1.0, 2.0]), 2, out=(values, indices))
        assert result.values is values and values.item() == 2.0 and indices.item() == 2


@pytest.mark.parametrize("P", (torch, backlight), ids=("torch", "backlight"))
def test_functions_that_write_in_place(P):
    x = P.tensor([4.0, 9.0])
    assert P.sqrt_(x) is x and x.tolist() == [2.0, 3.0]
    assert P.put(x, P.tensor([0]), P.tensor([7.0])).tolist() == [7.0, 3.0]
    assert x.fill_(1).tolist() == [1.0, 1.0]


def test_random_numbers_are_pytorchs():
    rates = np.concatenate([np.linspace(0, 9, 20), np.linspace(10, 1000, 30)])
    trials = np.array([1.0, 5, 20, 100, 1000, 50] * 9)
    chances = np.array([0.3, 0.9, 0.5, 0.2, 0.7, 0.0] * 9)
    drawn = []
    for P in (torch, backlight):
        P.manual_seed(3)
        F = P.nn.functional
        image = P.tensor(np.linspace(-1, 1, 60).reshape(3, 4, 5))
        found = [
            P.poisson(P.tensor(rates)), P.binomial(P.tensor(trials), P.tensor(chances)), F.rrelu(image, training=True),
            F.feature_alpha_dropout(image, training=True), F.gumbel_softmax(image, hard=True), P.feature_dropout(image, 0.5, True),
            F.fractional_max_pool2d(image, 2, output_size=2), P.rand(3),
        ]  # fmt: skip
        drawn.append([t.numpy() for t in found])
    for a, b in zip(*drawn):
        np.testing.assert_allclose(b, a, 1e-6)


def test_composites_have_one_node_and_second_derivatives():
    """grid_sample's gradient is differentiable here although it isn't in PyTorch: checked by finite differences."""
    rng = np.random.default_rng(0)
    image, grid = (backlight.tensor(rng.uniform(-0.9, 0.9, shape)) for shape in ((1, 2, 4, 5), (1, 3, 3, 2)))
    grid.requires_grad_()

    def slope(grid):
        sampled = backlight.nn.functional.grid_sample(image, grid, "bicubic", align_corners=True)
        assert sampled.grad_fn.name() == "GridSampler2DBackward0"
        return backlight.autograd.grad((sampled**2).sum(), grid, create_graph=True)[0]

    direction = backlight.tensor(rng.standard_normal(grid.shape))
    (second,) = backlight.autograd.grad((slope(grid) * direction).sum(), grid)
    step = 1e-6
    ahead, behind = (slope((grid + sign * step * direction).detach().requires_grad_()) for sign in (1, -1))
    np.testing.assert_allclose(second.numpy(), ((ahead - behind) / (2 * step)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_functions_are_named_as_in_pytorch():
    """`__name__`, which programs print. Aliases (`absolute` for `abs`) and functions of linalg, fft and special share one."""
    made = set("function like new method copied with_indices in_place out_of_place unsafe transform with_out".split())
    wrong = []
    for place in ("torch", "torch.Tensor", "torch.nn.functional"):
        theirs, ours = torch, backlight
        for part in place.split(".")[1:]:
            theirs, ours = getattr(theirs, part), getattr(ours, part)
        for name in dir(theirs):
            name_there = getattr(getattr(theirs, name), "__name__", None)
            name_here = getattr(getattr(ours, name, None), "__name__", None)
            if name.startswith("_") or name_there != name or name_here in (None, name):
                continue
            if name_here in made or name_here[0] in "_<":
                wrong.append(f"{place}.{name}: {name_here}")
    assert not wrong
