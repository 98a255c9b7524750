"""Averages of weights against PyTorch, and an optimizer's step on other parameters."""

import copy
import importlib
import math

import numpy as np
import pytest
from both_packages import Programs, assert_same_log, attempt

import backlight

program = Programs()


def utils_of(lib):
    return importlib.import_module(f"{lib.__name__}.optim.swa_utils")


def model_of(lib):
    lib.manual_seed(0)
    return lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 2))


def train(lib, model, number):
    """Other parameters and buffers, the same in both packages."""
    rng = np.random.default_rng(number)
    with lib.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(lib.tensor(rng.standard_normal(tuple(tensor.shape)).astype("float32")))
            else:
                tensor.fill_(10 * number)


@program
def averages(torch, log):
    utils = utils_of(torch)
    for options in (
        {},
        {"use_buffers": True},
        {"avg_fn": utils.get_ema_avg_fn(0.9)},
        {"avg_fn": utils.get_swa_avg_fn()},
        {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9)},
        {"multi_avg_fn": utils.get_swa_multi_avg_fn()},
        {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9), "use_buffers": True},
        {"avg_fn": utils.get_ema_avg_fn(0.9), "use_buffers": True},
        {"avg_fn": lambda average, current, number: average + current * number},
        {"device": "cpu"},
    ):
        model = model_of(torch)
        average = utils.AveragedModel(model, **options)
        for number in range(4):
            train(torch, model, number)
            average.update_parameters(model)
            log += [average.n_averaged, *average.parameters(), *average.buffers()]
        log.append(list(average.state_dict()))
        other = utils.AveragedModel(model_of(torch), **options)
        other.load_state_dict(average.state_dict())
        log += [other.n_averaged, other.eval()(torch.ones(2, 3)), repr(other), other.training]
        log.append(copy.deepcopy(average).module[0].weight)


@program
def errors(torch, log):
    utils = utils_of(torch)
    attempt(log, utils.get_ema_avg_fn, 1.5)
    attempt(log, utils.get_ema_multi_avg_fn, -0.5)
    attempt(log, utils.AveragedModel, torch.nn.Linear(1, 1), avg_fn=max, multi_avg_fn=max)
    swa = utils.get_swa_multi_avg_fn()
    attempt(log, swa, [torch.tensor([1, 2])], [torch.tensor([5, 6])], torch.tensor(1))
    attempt(log, swa, [torch.tensor([1, 2])], [torch.tensor([5, 6])], 1)
    ema = utils.get_ema_multi_avg_fn(0.5)
    whole = [torch.tensor([1, 2])]
    attempt(log, ema, whole, [torch.tensor([5, 9])], 1)
    log += whole
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    attempt(log, utils.SWALR, optimizer, 0.1, anneal_strategy="up")
    attempt(log, utils.SWALR, optimizer, 0.1, anneal_epochs=-1)
    attempt(log, utils.SWALR, optimizer, [0.1, 0.2])


@program
def swa_learning_rates(torch, log):
    utils = utils_of(torch)
    for options in (
        {},
        {"anneal_epochs": 3, "anneal_strategy": "linear"},
        {"anneal_epochs": 0},
        {"anneal_epochs": 4, "anneal_strategy": "cos"},
    ):
        groups = [{"params": [torch.nn.Parameter(torch.zeros(1))]}, {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.3}]
        optimizer = torch.optim.SGD(groups, lr=1.0)
        scheduler = utils.SWALR(optimizer, [0.05, 0.5], **options)
        for _ in range(6):
            optimizer.step()
            scheduler.step()
            log.append(scheduler.get_last_lr())
        state = scheduler.state_dict()
        log.append(state)
        again = utils.SWALR(optimizer, 0.05)
        again.load_state_dict(state)
        optimizer.step()
        again.step()
        log += [again.get_last_lr(), again.get_lr()]


@program
def batch_norms(torch, log):
    utils = utils_of(torch)
    batches = [torch.arange(12.0).view(4, 3) * scale for scale in (1, -2, 3)]
    for loader in (batches, [[batch, None] for batch in batches]):
        model = model_of(torch).eval()
        model[1].momentum = 0.3
        utils.update_bn(loader, model, device="cpu")
        log += [*model.buffers(), model.training, model[1].momentum]
    plain = torch.nn.Linear(3, 3)
    utils.update_bn(iter(()), plain)
    log.append(plain.training)


@program
def swapping_in(torch, log):
    parameters = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))]
    optimizer = torch.optim.Adam([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.5}], lr=0.1)
    swap = torch.optim.swap_in_optimizer_params_and_state

    def within(others, state):
        with swap(optimizer, others, state):
            optimizer.step()

    attempt(log, within, {}, {})
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    others = {"a": torch.full((2,), 5.0), "b": torch.full((3,), 7.0)}
    for other in others.values():
        other.grad = torch.ones_like(other)
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0]["lr"] = 2.0
    within(others, state)
    log += [*others.values(), *parameters, state["state"][0]["exp_avg"], optimizer.state[parameters[0]]["exp_avg"]]
    log += [optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["params"][0] is parameters[0]]
    groups = state["param_groups"]
    for wrong in (
        3,
        {},
        {"state": {parameters[0]: {}}, "param_groups": groups},
        {"state": {0: 3}, "param_groups": groups},
        {"state": {}, "param_groups": 3},
        {"state": {}, "param_groups": groups[:1]},
        {"state": {}, "param_groups": [3, 4]},
        {"state": {}, "param_groups": [{**groups[0], "params": ["a"]}, groups[1]]},
        {"state": {}, "param_groups": [{**groups[0], "params": [0, 1]}, groups[1]]},
        {"state": {}, "param_groups": [{**groups[0], "more": 1}, groups[1]]},
        {"state": {9: {}}, "param_groups": groups},
    ):
        attempt(log, within, others, wrong)
    attempt(log, within, {"a": others["a"]}, state)


@pytest.mark.parametrize("name", program)
def test_program(name):
    assert_same_log(program[name])


def test_the_mean_is_the_mean():
    """What PyTorch computes is the mean, too: no comparison of two equal mistakes."""
    model = model_of(backlight)
    average = backlight.optim.swa_utils.AveragedModel(model)
    seen = []
    for number in range(5):
        train(backlight, model, number)
        average.update_parameters(model)
        seen.append(model[0].weight.detach().numpy().copy())
    np.testing.assert_allclose(average.module[0].weight.detach().numpy(), np.mean(seen, 0), rtol=1e-5, atol=1e-6)
    assert math.isclose(average.n_averaged.item(), 5)
