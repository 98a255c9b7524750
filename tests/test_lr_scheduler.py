"""Learning rate schedules against PyTorch: the same learning rates to the last bit, the same state, warnings and errors."""

import copy
import importlib
import pickle
import warnings

import pytest
import torch

import backlight

BOTH = (torch, backlight)
# Each is made by eval with `o`, an optimizer of two groups, and `s`, the module.
SCHEDULES = """LambdaLR(o, lambda epoch: 0.9**epoch)
LambdaLR(o, [lambda epoch: 0.9**epoch, lambda epoch: 1 / (1 + epoch)])
MultiplicativeLR(o, lambda epoch: 0.8)
MultiplicativeLR(o, [lambda epoch: 0.8, lambda epoch: 1.1])
StepLR(o, 3)
StepLR(o, step_size=2, gamma=0.5)
MultiStepLR(o, [2, 3, 3, 7], gamma=0.2)
ConstantLR(o)
ConstantLR(o, factor=0.2, total_iters=3)
LinearLR(o)
LinearLR(o, start_factor=0.1, end_factor=0.7, total_iters=6)
ExponentialLR(o, 0.7)
PolynomialLR(o)
PolynomialLR(o, total_iters=7, power=2.5)
CosineAnnealingLR(o, 4)
CosineAnnealingLR(o, T_max=6, eta_min=0.01)
CosineAnnealingWarmRestarts(o, 3)
CosineAnnealingWarmRestarts(o, T_0=2, T_mult=2, eta_min=0.003)
CyclicLR(o, 0.01, 0.1, step_size_up=3)
CyclicLR(o, [0.01, 0.02], [0.1, 0.3], step_size_up=3, step_size_down=2, mode="triangular2")
CyclicLR(o, 0.01, 0.1, step_size_up=2, mode="exp_range", gamma=0.9, base_momentum=0.5, max_momentum=0.7)
CyclicLR(o, 0.01, 0.1, step_size_up=2, scale_fn=lambda x: 1 / (1 + x), scale_mode="iterations")
CyclicLR(o, 0.01, 0.1, step_size_up=2, cycle_momentum=False)
OneCycleLR(o, 0.1, total_steps=15)
OneCycleLR(o, [0.1, 0.5], epochs=5, steps_per_epoch=4, anneal_strategy="linear", pct_start=0.4)
OneCycleLR(o, 0.1, total_steps=14, three_phase=True, div_factor=5.0, final_div_factor=10.0)
OneCycleLR(o, 0.1, total_steps=14, cycle_momentum=False)
SequentialLR(o, [s.ConstantLR(o, factor=0.1, total_iters=3), s.ExponentialLR(o, 0.9)], milestones=[3])
SequentialLR(o, [s.LinearLR(o, total_iters=2), s.CosineAnnealingLR(o, 4), s.StepLR(o, 2)], milestones=[2, 6])
SequentialLR(o, [s.SequentialLR(o, [s.StepLR(o, 1), s.StepLR(o, 2)], [2]), s.StepLR(o, 2)], milestones=[5])
ChainedScheduler([s.ConstantLR(o, factor=0.1, total_iters=3), s.ExponentialLR(o, 0.9)])
ChainedScheduler([s.StepLR(o, 2), s.LinearLR(o)], optimizer=o)""".split("\n")
OPTIMIZERS = ("SGD(groups, lr=0.5, momentum=0.9)", "Adam(groups, lr=0.05)", "SGD(groups, lr=torch.tensor(0.25))")


def optimizer_of(lib, text):
    groups = [{"params": [lib.nn.Parameter(lib.zeros(2))]}, {"params": [lib.nn.Parameter(lib.zeros(3))]}]
    if "torch" not in text:
        groups[1]["lr"] = 0.125
    return eval(text, {**{name: getattr(lib.optim, name) for name in ("SGD", "Adam", "RMSprop", "Adagrad")}, "groups": groups, "torch": lib})  # fmt: skip


def scheduler_of(lib, text, o):
    s = importlib.import_module(f"{lib.__name__}.optim.lr_scheduler")
    return eval(text, {**vars(s), "s": s, "o": o, "torch": lib})


def shown(value):
    """A value as text that both packages share: tensors by their numbers, objects by their class."""
    if isinstance(value, (torch.Tensor, backlight.Tensor)):
        return f"tensor({value.tolist()})"
    if isinstance(value, dict):
        return {key: shown(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(shown(entry) for entry in value)
    if callable(value):
        return "function"
    return repr(value)


def groups_of(optimizer):
    return [shown({key: value for key, value in group.items() if key != "params"}) for group in optimizer.param_groups]


def same(program):
    """The program's log is the same with both packages, warnings included."""
    logs = []
    for lib in BOTH:
        log = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program(lib, log.append)
        logs.append(log + [(w.category.__name__, str(w.message)) for w in caught])
    assert logs[1] == logs[0]
    return logs[0]


@pytest.mark.parametrize("optimizer_text", OPTIMIZERS)
@pytest.mark.parametrize("text", SCHEDULES)
def test_schedule(text, optimizer_text):
    def program(lib, out):
        o = optimizer_of(lib, optimizer_text)
        try:
            scheduler = scheduler_of(lib, text, o)
            out((groups_of(o), shown(scheduler.state_dict())))
            for _ in range(13):
                o.step()
                scheduler.step()
                out((shown(scheduler.get_last_lr()), groups_of(o)))
            out((list(scheduler.state_dict()), shown(scheduler.state_dict())))
        except Exception as error:
            out(f"{type(error).__name__}: {error}")

    same(program)


@pytest.mark.parametrize("text", SCHEDULES)
def test_resuming(text):
    def program(lib, out):
        o = optimizer_of(lib, OPTIMIZERS[0])
        scheduler = scheduler_of(lib, text, o)
        for _ in range(5):
            o.step()
            scheduler.step()
        saved = copy.deepcopy((o.state_dict(), scheduler.state_dict()))
        other = optimizer_of(lib, OPTIMIZERS[0])
        resumed = scheduler_of(lib, text, other)
        other.load_state_dict(saved[0])
        resumed.load_state_dict(saved[1])
        for which, stepped in ((o, scheduler), (other, resumed)):
            rates = []
            for _ in range(7):
                which.step()
                stepped.step()
                rates.append(shown(stepped.get_last_lr()))
            out(rates)
        out(shown(resumed.state_dict()))

    log = same(program)
    assert log[0] == log[1]


@pytest.mark.parametrize("text", [text for text in SCHEDULES if not text.startswith(("Chained", "Sequential"))])
def test_last_epoch(text):
    def program(lib, out):
        o = optimizer_of(lib, OPTIMIZERS[0])
        later = text[:-1] + ", last_epoch=3)"
        try:
            scheduler_of(lib, later, o)
        except KeyError as error:
            out(str(error))
        scheduler = scheduler_of(lib, text, o)
        for _ in range(4):
            o.step()
            scheduler.step()
        again = scheduler_of(lib, later, o)
        for _ in range(5):
            o.step()
            again.step()
            out((shown(again.get_last_lr()), again.last_epoch))

    same(program)


@pytest.mark.parametrize("text", [text for text in SCHEDULES if not text.startswith(("Chained", "Sequential"))])
def test_the_deprecated_epoch(text):
    def program(lib, out):
        o = optimizer_of(lib, OPTIMIZERS[0])
        scheduler = scheduler_of(lib, text, o)
        for epoch in (1, 4, 2, 9, 7.5 if "Restarts" in text else 7):
            o.step()
            try:
                out(shown(scheduler.step(epoch)))
                out((shown(scheduler.get_last_lr()), scheduler.last_epoch))
            except Exception as error:
                out(f"{type(error).__name__}: {error}")

    same(program)


@pytest.mark.parametrize(
    "text",
    [
        "ReduceLROnPlateau(o)",
        "ReduceLROnPlateau(o, patience=1, factor=0.5)",
        "ReduceLROnPlateau(o, mode='max', patience=0, threshold=0.1)",
        "ReduceLROnPlateau(o, mode='max', patience=1, threshold=0.2, threshold_mode='abs', cooldown=2)",
        "ReduceLROnPlateau(o, patience=0, threshold_mode='abs', min_lr=[0.05, 0.1], eps=0.01)",
        "ReduceLROnPlateau(o, patience=0, min_lr=0.1)",
    ],
)
@pytest.mark.parametrize("optimizer_text", OPTIMIZERS)
def test_plateau(text, optimizer_text):
    def program(lib, out):
        o = optimizer_of(lib, optimizer_text)
        scheduler = scheduler_of(lib, text, o)
        out((scheduler.in_cooldown, shown(scheduler.state_dict())))
        for i, metric in enumerate((1.0, 0.9, 0.95, 0.9, 0.9, 0.91, lib.tensor(0.5), 0.6, 0.7, 0.5, 0.5, 0.4, 0.4, 0.4)):
            scheduler.step(metric)
            out((shown(scheduler.get_last_lr()), scheduler.in_cooldown, scheduler.num_bad_epochs, scheduler.best))
            if i == 7:
                state = copy.deepcopy(scheduler.state_dict())
                scheduler = scheduler_of(lib, "ReduceLROnPlateau(o)", o)
                scheduler.load_state_dict(state)
        scheduler.step(0.3, epoch=30)
        out((scheduler.last_epoch, shown(scheduler.state_dict())))
        o.add_param_group({"params": [lib.nn.Parameter(lib.zeros(1))], "lr": o.param_groups[0]["lr"]})
        try:
            for _ in range(12):
                scheduler.step(5.0)
            out(shown(scheduler.get_last_lr()))
        except RuntimeError as error:
            out(str(error))

    same(program)


def test_errors():
    texts = """LRScheduler(3)
LRScheduler(o)
LambdaLR(o, [lambda e: 1.0])
MultiplicativeLR(o, [3, 4])
MultiplicativeLR(o, 3)
ConstantLR(o, factor=1.1)
ConstantLR(o, factor=-0.1)
LinearLR(o, start_factor=0)
LinearLR(o, start_factor=2)
LinearLR(o, end_factor=-1)
SequentialLR(o, [], [])
SequentialLR(o, [3], [])
SequentialLR(o, [s.ReduceLROnPlateau(o)], [])
SequentialLR(o, [s.StepLR(other, 2)], [])
SequentialLR(o, [s.StepLR(o, 2)], [1])
ChainedScheduler([])
ChainedScheduler([s.ReduceLROnPlateau(o)])
ChainedScheduler([s.StepLR(o, 2), s.StepLR(other, 2)])
ReduceLROnPlateau(3)
ReduceLROnPlateau(o, factor=1.0)
ReduceLROnPlateau(o, mode="up")
ReduceLROnPlateau(o, threshold_mode="up")
ReduceLROnPlateau(o, min_lr=[1.0])
CyclicLR(3, 0.1, 0.2)
CyclicLR(o, [0.1], 0.2)
CyclicLR(o, 0.1, [0.2])
CyclicLR(o, 0.1, 0.2, mode="x")
CyclicLR(bare, 0.1, 0.2)
CosineAnnealingWarmRestarts(o, 0)
CosineAnnealingWarmRestarts(o, 2.5)
CosineAnnealingWarmRestarts(o, 2, T_mult=0)
CosineAnnealingWarmRestarts(o, 2, eta_min="x")
CosineAnnealingWarmRestarts(o, 2).step(-1)
OneCycleLR(3, 0.1)
OneCycleLR(o, 0.1)
OneCycleLR(o, 0.1, epochs=3)
OneCycleLR(o, 0.1, epochs=-3, steps_per_epoch=2)
OneCycleLR(o, 0.1, epochs=3, steps_per_epoch=2.5)
OneCycleLR(o, 0.1, total_steps=0)
OneCycleLR(o, 0.1, total_steps=10, pct_start=2.0)
OneCycleLR(o, 0.1, total_steps=10, anneal_strategy="x")
OneCycleLR(o, [0.1], total_steps=10)
OneCycleLR(bare, 0.1, total_steps=10)
StepLR(o, 2).get_lr()
ExponentialLR(o, 0.5).get_lr()"""

    def program(lib, out):
        o, other = optimizer_of(lib, OPTIMIZERS[0]), optimizer_of(lib, OPTIMIZERS[0])
        bare = optimizer_of(lib, "Adagrad(groups, lr=0.1)")
        s = importlib.import_module(f"{lib.__name__}.optim.lr_scheduler")
        names = {**vars(s), "s": s, "o": o, "other": other, "bare": bare}
        for text in texts.split("\n"):
            try:
                out(shown(eval(text, names)) if "get_lr" in text else type(eval(text, names)).__name__)
            except Exception as error:
                out(f"{type(error).__name__}: {error}")
        last = s.OneCycleLR(o, 0.1, total_steps=2)
        for _ in range(3):
            try:
                o.step()
                last.step()
            except ValueError as error:
                out(str(error))

    same(program)


def test_warnings_about_the_order():
    def program(lib, out):
        s = importlib.import_module(f"{lib.__name__}.optim.lr_scheduler")
        o = optimizer_of(lib, OPTIMIZERS[0])
        scheduler = s.StepLR(o, 2)
        scheduler.step()  # warns: before optimizer.step()
        scheduler.step()
        o = optimizer_of(lib, OPTIMIZERS[0])
        scheduler = s.StepLR(o, 2)
        o.step()
        scheduler.step()
        o = optimizer_of(lib, OPTIMIZERS[0])
        scheduler = s.StepLR(o, 2)
        o.step = lambda: None
        scheduler.step()  # warns: step was overridden
        o = optimizer_of(lib, OPTIMIZERS[0])
        first, second = s.StepLR(o, 2), s.ExponentialLR(o, 0.5)
        o.step()
        first.step()
        second.step()
        out(shown(second.get_last_lr()))
        out(issubclass(s.StepLR, s._LRScheduler) or issubclass(s._LRScheduler, s.LRScheduler))

    same(program)


def test_objects_as_functions():
    class Decay:
        def __init__(self, rate):
            self.rate = rate

        def __call__(self, epoch):
            return self.rate**epoch

    def program(lib, out):
        s = importlib.import_module(f"{lib.__name__}.optim.lr_scheduler")
        o = optimizer_of(lib, OPTIMIZERS[0])
        for make in (lambda f, o=o: s.LambdaLR(o, [f, f]), lambda f, o=o: s.CyclicLR(o, 0.1, 1.0, 3, scale_fn=f)):
            first, second = make(Decay(0.5)), make(Decay(0.9))
            state = first.state_dict()
            out(shown(state))
            second.load_state_dict(state)  # PyTorch's CyclicLR takes an entry out of `state`, Backlight's does not
            o.step()
            second.step()
            out(shown(second.get_last_lr()))

    same(program)


def test_one_of_ones_own():
    def program(lib, out):
        s = importlib.import_module(f"{lib.__name__}.optim.lr_scheduler")

        class Warmup(s._LRScheduler):
            def __init__(self, optimizer, steps):
                self.steps = steps
                super().__init__(optimizer)

            def get_lr(self):
                return [base * min(1.0, (self.last_epoch + 1) / self.steps) for base in self.base_lrs]

        o = optimizer_of(lib, OPTIMIZERS[0])
        scheduler = Warmup(o, 4)
        for _ in range(5):
            o.step()
            scheduler.step()
            out(shown(scheduler.get_last_lr()))
        out(shown(scheduler.state_dict()))

    same(program)


def test_an_optimizer_under_a_schedule_can_be_copied():
    o = optimizer_of(backlight, OPTIMIZERS[0])
    scheduler = backlight.optim.lr_scheduler.StepLR(o, 1)
    o.step()
    scheduler.step()
    for twin in (copy.deepcopy(o), pickle.loads(pickle.dumps(o))):
        twin.step()
        assert twin.param_groups[0]["lr"] == o.param_groups[0]["lr"]
    twin = copy.deepcopy(scheduler)
    assert twin.get_last_lr() == scheduler.get_last_lr()
