"""Loading with worker processes: the same batches as PyTorch's, and what happens when a worker, or the program, ends badly.

Every test has a time limit: a worker that hangs must fail a test, not stop it.
"""

import gc
import importlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import backlight

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
BOTH = (torch, backlight)
SECONDS = 60


def data_of(lib):
    return importlib.import_module(f"{lib.__name__}.utils.data")


@pytest.fixture(autouse=True)
def time_limit():
    def stop(*_arguments):
        raise TimeoutError(f"the test took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def runs(pid) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children() -> set[int]:
    """The processes that this one has started and that still run."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in pids if runs(pid)}


@pytest.fixture
def no_worker_stays():
    """The workers that a test started are gone a little after it."""
    before = children()
    yield
    gc.collect()  # what pytest knows of a caught exception is a cycle that holds the iterator
    deadline = time.monotonic() + 8
    while children() - before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert children() - before == set()


class Numbers:
    """A dataset that needs no package: also for "spawn"."""

    def __init__(self, count, shape=()):
        self.count, self.shape = count, shape

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return np.full(self.shape, index, "float32"), index, {"name": str(index)}


class Drawing:
    """Samples that show every random stream of the process that makes them."""

    def __init__(self, lib):
        self.lib = lib

    def __len__(self):
        return 12

    def __getitem__(self, index):
        info = data_of(self.lib).get_worker_info()
        return index, self.lib.rand(1), random.random(), np.random.rand(), -1 if info is None else info.id


class Bad:
    """A dataset whose sample 5 does something bad."""

    def __init__(self, act, count=40):
        self.act, self.count = act, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index == 5:
            return self.act()
        return index


def plain(value):
    """A batch in a form that both packages share."""
    if isinstance(value, (torch.Tensor, backlight.Tensor)):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(entry) for entry in value]
    return value


def error_of(function):
    """The type and the text of what the call raises. The exception is let go, and with it the iterator."""
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    raise AssertionError("no exception")


def same(program):
    """What the program returns is the same with both packages."""
    theirs, ours = (program(lib) for lib in BOTH)
    assert ours == theirs
    return ours


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 3},
        {"batch_size": 3, "shuffle": True},
        {"batch_size": 5, "drop_last": True, "prefetch_factor": 1},
        {"batch_size": None, "shuffle": True, "prefetch_factor": 5},
        {"batch_sampler": [[1, 2], [0], [3, 3, 3]]},
        {"persistent_workers": True, "shuffle": True, "batch_size": 4},
    ],
)
def test_batches(workers, options, no_worker_stays):
    def program(lib):
        lib.manual_seed(4)
        loader = data_of(lib).DataLoader(Numbers(17, (2, 3)), num_workers=workers, **options)
        epochs = [[plain(batch) for batch in loader] for _ in range(3)]
        return epochs, lib.rand(2).tolist(), len(loader)

    same(program)


@pytest.mark.parametrize("generator", [False, True])
def test_random_streams(generator, no_worker_stays):
    """Workers draw what PyTorch's draw, from Backlight, random and numpy.random; the program's own streams go on equally."""

    def program(lib):
        lib.manual_seed(11)
        options = {"generator": lib.Generator().manual_seed(2)} if generator else {}
        log = []
        for persistent in (False, True):
            loader = data_of(lib).DataLoader(
                Drawing(lib), 2, shuffle=True, num_workers=2, persistent_workers=persistent, **options
            )
            log += [plain(batch) for _ in range(2) for batch in loader]
            log += [lib.rand(2).tolist(), lib.rand(2, **options).tolist()]
        log.append([plain(batch[:2]) for batch in data_of(lib).DataLoader(Drawing(lib), 2, **options)])
        return log

    same(program)


def iterable_of(lib):
    class Shared(data_of(lib).IterableDataset):
        """Each worker yields its share."""

        def __init__(self, count, told=None):
            self.count, self.told = count, told

        def __iter__(self):
            info = data_of(lib).get_worker_info()
            first, step = (0, 1) if info is None else (info.id, info.num_workers)
            return iter(range(first, self.count, step))

        def __len__(self):
            return self.told

    return Shared


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1, 3])
@pytest.mark.parametrize("count", [0, 1, 7, 20])
def test_iterable_datasets(persistent, batch_size, count, no_worker_stays):
    def program(lib):
        loader = data_of(lib).DataLoader(
            iterable_of(lib)(count), batch_size=batch_size, num_workers=3, persistent_workers=persistent
        )
        return [[plain(batch) for batch in loader] for _ in range(2)]

    same(program)


def test_a_length_that_is_too_short(no_worker_stays):
    def program(lib):
        loader = data_of(lib).DataLoader(iterable_of(lib)(6, told=4), num_workers=2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = [len(loader), len(list(loader))]
        return found, ["reported to be 4" in str(w.message) and "configuring the IterableDataset replica" in str(w.message) for w in caught]  # fmt: skip

    same(program)


def test_worker_info_and_init_function(no_worker_stays):
    def program(lib):
        data, seen = data_of(lib), []

        class Telling(data.Dataset):
            extra = 0

            def __len__(self):
                return 4

            def __getitem__(self, index):
                info = data.get_worker_info()
                assert info.dataset is self
                return info.id, info.num_workers, info.seed, self.extra, info.worker_method

        def start(number):
            data.get_worker_info().dataset.extra = 100 + number

        lib.manual_seed(0)
        loader = data.DataLoader(Telling(), num_workers=2, worker_init_fn=start)
        seen += [plain(batch) for batch in loader]
        return seen, data.get_worker_info(), Telling.extra

    same(program)


def test_an_error_in_the_init_function(no_worker_stays):
    def program(lib):
        def start(number):
            raise ValueError(f"not {number}")

        iterator = iter(data_of(lib).DataLoader(range(4), num_workers=1, worker_init_fn=start))
        kind, text = error_of(lambda: next(iterator))
        iterator._shutdown_workers()
        return kind, text.split("\n")[:2], text.strip().split("\n")[-1]

    assert same(program)[2] == "ValueError: not 0"


class Twofold(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)


def raises(error):
    def act():
        raise error

    return act


@pytest.mark.parametrize(
    "error", [ValueError("bad"), KeyError("key"), Twofold(1, 2), IndexError("far"), RuntimeError(), NotImplementedError("x")]
)
def test_an_error_in_a_worker(error, no_worker_stays):
    """The same type and text (but for the lines of the loader's own code), plus the sample."""

    def program(lib):
        got = []

        def load():
            iterator = iter(data_of(lib).DataLoader(Bad(raises(error)), 2, num_workers=2))
            try:
                for batch in iterator:
                    got.append(batch.tolist())
            finally:
                iterator._shutdown_workers()  # PyTorch's would wait for the garbage collector, and then for 10 s

        kind, text = error_of(load)
        lines = text.split("\n")
        if lib is backlight:
            assert lines.pop(-2) == "It was raised for sample 5 of the dataset."
        last = lines.index(next(line for line in lines if "in act" in line))
        return got, kind, lines[:2], lines[last:]

    same(program)


def test_loading_goes_on_after_an_error(no_worker_stays):
    def program(lib):
        iterator, log = iter(data_of(lib).DataLoader(Bad(raises(ValueError("bad")), 12), 2, num_workers=2)), []
        while True:
            try:
                log.append(next(iterator).tolist())
            except ValueError:
                log.append("error")
            except StopIteration:
                return log

    same(program)


def test_an_error_in_collating_has_no_sample(no_worker_stays):
    with pytest.raises(TypeError, match="default_collate: batch must contain") as caught:
        list(data_of(backlight).DataLoader([object()] * 3, num_workers=1))
    assert "sample" not in str(caught.value)


def test_what_cannot_be_pickled(no_worker_stays):
    """PyTorch hangs here: the batch, or the class of the exception, doesn't get through to the program."""

    class Local(Exception):
        pass

    data = data_of(backlight)
    with pytest.raises(RuntimeError, match="Caught Local in DataLoader worker process 0"):
        list(data.DataLoader(Bad(raises(Local("x"))), num_workers=1))
    with pytest.raises(AttributeError, match="Can't (pickle|get) local object"):
        list(data.DataLoader(Bad(lambda: lambda: 3), num_workers=1, collate_fn=list))


@pytest.mark.parametrize("shape", [(3,), (1000,), (200, 200), (0,), (0, 5)])
def test_large_arrays(shape, no_worker_stays):
    """Over the socket or through shared memory: writable arrays with the same values, which stay when workers have gone."""
    data = data_of(backlight)
    batches = list(data.DataLoader(Numbers(12, shape), 4, num_workers=2))
    for number, (arrays, indices, _names) in enumerate(batches):
        assert arrays.shape == (4, *shape)
        expected = np.arange(4 * number, 4 * number + 4)
        assert indices.tolist() == expected.tolist()
        np.testing.assert_array_equal(arrays.numpy(), np.broadcast_to(expected.reshape(4, *[1] * len(shape)), arrays.shape))
        arrays += 1
        assert arrays.sum().item() == (expected + 1).sum() * np.prod(shape)


def test_more_batches_than_files(no_worker_stays):
    """Batches in shared memory keep a file open each; from some number on they are copied."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, before[1]))
    try:
        batches = list(data_of(backlight).DataLoader(Numbers(500, (30_000,)), num_workers=2))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [int(arrays[0, -1]) for arrays, _, _ in batches] == list(range(500))
    batches[450][0].add_(1)
    del batches
    transfer = importlib.import_module("backlight.utils.data._utils.transfer")
    assert len(transfer._mapped) == 0


def test_tensors_of_all_types(no_worker_stays):
    def program(lib):
        samples = [
            {
                "half": lib.tensor([1.5], dtype=lib.float16),
                "bfloat16": lib.tensor([1.5], dtype=lib.bfloat16),
                "complex": lib.tensor([1 + 2j]),
                "bool": lib.tensor(True),
                "int8": lib.tensor([[i]], dtype=lib.int8),
                "text": "abc",
                "none": 3,
            }
            for i in range(4)
        ]
        return [plain({k: v.float() if k == "bfloat16" else v for k, v in b.items()}) for b in data_of(lib).DataLoader(samples, 2, num_workers=1)]  # fmt: skip

    same(program)


def test_out_of_order(no_worker_stays):
    """The batch that is ready first comes first."""

    class Uneven:
        def __len__(self):
            return 6

        def __getitem__(self, index):
            time.sleep(0.6 if index == 0 else 0.02)
            return index

    def program(lib):
        loader = data_of(lib).DataLoader(Uneven(), batch_size=None, num_workers=2, in_order=False)
        first = list(loader)
        return sorted(first), first[-1], list(data_of(lib).DataLoader(Uneven(), batch_size=None, num_workers=2))

    same(program)


def test_many_large_tasks_do_not_block(no_worker_stays):
    """Lists of indices that fill the socket, while results that fill it come back."""
    data = data_of(backlight)
    batches = [list(range(20_000))] * 30
    loader = data.DataLoader(
        range(20_000), batch_sampler=batches, num_workers=2, prefetch_factor=12, collate_fn=lambda batch: "x" * 90_000
    )
    assert [len(text) for text in loader] == [90_000] * 30


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_to_start(method, tmp_path, no_worker_stays):
    """The processes import the dataset's module anew."""
    script = f"""
import numpy as np
import backlight as torch
from backlight.utils.data import DataLoader, Dataset, get_worker_info

class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return np.full((30_000,), index, "float32"), get_worker_info().id, torch.rand(1)

if __name__ == "__main__":
    torch.manual_seed(0)
    for arrays, workers, numbers in DataLoader(Numbers(), 2, num_workers=2, multiprocessing_context="{method}"):
        print(arrays[:, -1].tolist(), workers.tolist(), [round(x, 3) for x in numbers.flatten().tolist()])
"""
    texts = []
    for lib in BOTH:
        path = tmp_path / f"{lib.__name__}_program.py"
        path.write_text(script.replace("backlight", lib.__name__))
        done = subprocess.run(
            [sys.executable, "-W", "ignore", path], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert texts[1] == texts[0]
    assert texts[1].count("\n") == 4


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_program_under_backlight_run(method, tmp_path):
    """`import torch` gives Backlight in processes that are started anew, too."""
    script = tmp_path / "program.py"
    script.write_text(f"""
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return torch.full((2,), float(index)), torch.__version__

if __name__ == "__main__":
    for numbers, versions in DataLoader(Numbers(), 3, num_workers=2, multiprocessing_context="{method}"):
        print(numbers.tolist(), *versions)
""")
    command = [sys.executable, "-W", "ignore", "-m", "backlight", "run", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert lines[0].startswith("[[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]] ")
    assert lines[0].count("+backlight") == lines[1].count("+backlight") == 3


def test_a_dataset_that_spawn_cannot_pickle():
    loader = data_of(backlight).DataLoader(Bad(lambda: 3), num_workers=1, multiprocessing_context="spawn")
    with pytest.warns(UserWarning, match="Got pickle error when attempting to start a worker Process"):  # noqa: SIM117
        with pytest.raises((AttributeError, TypeError)):
            iter(loader)
    assert multiprocessing.active_children() == []


def killed_by(number):
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_killed_worker(number, no_worker_stays):
    loader = data_of(backlight).DataLoader(Bad(killed_by(number)), 2, num_workers=2)
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly") as caught:
        list(loader)
    assert time.monotonic() - start < 5
    cause = f"is killed by signal: {signal.strsignal(number)}. "
    assert str(caught.value.__cause__).endswith(cause)


@pytest.mark.parametrize("code", [0, 3])
def test_a_worker_that_exits(code, no_worker_stays):
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly") as caught:
        list(data_of(backlight).DataLoader(Bad(lambda: os._exit(code)), 2, num_workers=2))
    assert time.monotonic() - start < 5
    cause = caught.value.__cause__
    assert cause is None if code == 0 else f"exited unexpectedly with exit code {code}. Details are lost" in str(cause)


KILLED = """
import os, re, sys
from backlight.utils.data import DataLoader

class Bad:
    def __len__(self):
        return 8
    def __getitem__(self, index):
        {act}

try:
    list(DataLoader(Bad(), num_workers=1))
except RuntimeError as error:
    for text in error, error.__cause__:
        print(re.sub(r"\\d{{2,}}", "N", str(text)))
"""


@pytest.mark.parametrize("act", ["os.kill(os.getpid(), 9)", "os._exit(3)"])
def test_the_texts_about_dead_workers_are_pytorchs(act):
    """In a program of its own: PyTorch raises from a signal handler, wherever the process happens to be."""
    texts = []
    for lib in BOTH:
        program = KILLED.format(act=act).replace("backlight", lib.__name__)
        command = [sys.executable, "-W", "ignore", "-c", program]
        texts.append(subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout)
    assert texts[1] == texts[0]
    assert "DataLoader worker (pid N)" in texts[1]


def test_an_idle_worker_that_is_killed(no_worker_stays):
    """Also one whose turn is not next is noticed, or when its turn comes."""
    iterator = iter(data_of(backlight).DataLoader(range(1000), 2, num_workers=2))
    next(iterator)
    os.kill(iterator._workers[1].process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        for _ in range(20):
            next(iterator)


def test_a_timeout(no_worker_stays):
    loader = data_of(backlight).DataLoader(Bad(lambda: time.sleep(2)), num_workers=1, timeout=0.5)
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.5 seconds"):
        list(loader)


@pytest.mark.parametrize("act", [raises(ValueError("bad")), raises(KeyError("bad")), lambda: os._exit(3)])
def test_no_worker_stays_after_an_error(act):
    """At once, without the garbage collector."""
    before = children()
    gc.disable()
    try:
        error_of(lambda: list(data_of(backlight).DataLoader(Bad(act), 2, num_workers=2)))
        assert children() - before == set()
    finally:
        gc.enable()


@pytest.mark.parametrize("persistent", [False, True])
def test_leaving_early(persistent, no_worker_stays):
    """By break, by an exception, by dropping the iterator: soon no worker is left, even with many batches on the way."""
    data, before = data_of(backlight), children()
    loader = data.DataLoader(Numbers(10_000, (300, 300)), 4, num_workers=2, prefetch_factor=4, persistent_workers=persistent)
    start = time.monotonic()
    for _batch in loader:
        break
    with pytest.raises(ZeroDivisionError):
        for _batch in loader:
            1 / 0  # noqa: B018
    iterator = iter(loader)
    next(iterator)
    assert len(children() - before) >= 2
    del iterator, loader
    assert children() - before == set()
    assert time.monotonic() - start < 10


def test_tasks_on_the_way_are_dropped(no_worker_stays):
    """A worker finishes the batch it is at, and no other."""

    class Slow:
        def __len__(self):
            return 1000

        def __getitem__(self, index):
            time.sleep(0.3)
            return index

    iterator = iter(data_of(backlight).DataLoader(Slow(), num_workers=1, prefetch_factor=10))
    next(iterator)
    start = time.monotonic()
    del iterator
    assert time.monotonic() - start < 1


def test_a_worker_that_takes_too_long_is_ended_by_force(no_worker_stays, monkeypatch):
    parallel = importlib.import_module("backlight.utils.data._utils.parallel")
    monkeypatch.setattr(parallel, "SECONDS_TO_FINISH", 0.3)
    iterator = iter(data_of(backlight).DataLoader(Bad(lambda: time.sleep(100)), num_workers=1))
    for _ in range(5):
        next(iterator)
    start = time.monotonic()
    del iterator
    assert time.monotonic() - start < 3


PROGRAM = """
import os, sys, time
import backlight as torch
from backlight.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 100000
    def __getitem__(self, index):
        return torch.zeros(200_000)

loader = DataLoader(Numbers(), 2, num_workers=3, persistent_workers={persistent})
iterator = iter(loader)
next(iterator)
print(*[worker.process.pid for worker in iterator._workers], flush=True)
{end}
"""


@pytest.mark.parametrize(
    "end", ["", "sys.exit(3)", "os._exit(0)", "1 / 0", "os.kill(os.getpid(), 15)", "os.kill(os.getpid(), 9)", "wait"]
)
@pytest.mark.parametrize("persistent", [False, True])
def test_no_worker_survives_the_program(end, persistent):
    """However the program ends: at its last line, by exit or exception, or killed."""
    text = PROGRAM.format(persistent=persistent, end="time.sleep(100)" if end == "wait" else end)
    program = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert program.stdout is not None
    pids = [int(pid) for pid in program.stdout.readline().split()]
    assert len(pids) == 3
    if end == "wait":
        program.send_signal(signal.SIGINT)
    program.stdout.close()
    program.wait(timeout=20)
    deadline = time.monotonic() + 8
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in pids if runs(pid)] == []


def test_a_forked_copy_of_the_iterator_leaves_the_workers_alone(no_worker_stays):
    iterator = iter(data_of(backlight).DataLoader(range(20), 2, num_workers=2))
    next(iterator)
    pid = os.fork()
    if pid == 0:
        del iterator
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(list(iterator)) == 9


def test_a_loader_in_a_loop(no_worker_stays):
    """Many iterators leave neither processes nor open files behind."""
    data = data_of(backlight)
    for _ in data.DataLoader(range(4), 2, num_workers=1):
        pass
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(8):
        assert len(list(data.DataLoader(Numbers(8, (60_000,)), 2, num_workers=2))) == 4
    assert len(os.listdir("/proc/self/fd")) <= files


def test_workers_do_not_record(no_worker_stays):
    """A recording in the program goes on without the workers' operations."""
    from backlight import inspect

    class Sums:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return backlight.ones(3).sum() * index

    with inspect.record("shapes") as record:
        x = backlight.ones(2, requires_grad=True)
        values = [batch.item() for batch in data_of(backlight).DataLoader(Sums(), num_workers=1)]
        (x * 2).sum().backward()
    assert values == [0, 3, 6, 9]
    assert record.to_jsonl()
