"""How kernels run: threads, forked processes, the cache on disk, switches in the environment, what is imported when."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import backlight
from backlight import kernels
from backlight.kernels import threads

pytestmark = pytest.mark.skipif(not kernels.ENABLED, reason="kernels are switched off")
EXAMPLES = Path(__file__).parent.parent / "examples"
F = backlight.nn.functional


def python(code, *, cache=None, seconds=120, **environment):
    """What a program prints in a process of its own; it must succeed, in time."""
    inherited = {k: v for k, v in os.environ.items() if k != "BACKLIGHT_KERNELS"}
    environment = {**inherited, "OMP_NUM_THREADS": "2", **environment, **({"BACKLIGHT_CACHE": str(cache)} if cache else {})}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=seconds)
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


@pytest.fixture
def two_threads():
    before = threads.get_threads()
    threads.set_threads(2)
    yield
    threads.set_threads(before)


# Threads


def tensor(shape, seed=0, dtype=np.float32):
    array = np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)
    return backlight.tensor(array, requires_grad=True)


def gradients(function, *inputs):
    """The function's result and the gradients of its inputs."""
    y = function(*inputs)
    return [y.detach().numpy(), *(g.numpy() for g in backlight.autograd.grad((y * y).sum(), inputs))]


def adam():
    x = tensor((400, 401)).detach().requires_grad_()
    optimizer = backlight.optim.Adam([x], lr=0.1)
    for step in range(3):
        x.grad = tensor((400, 401), step + 1).detach()
        optimizer.step()
    return [x.detach().numpy()]


def lstm():
    backlight.manual_seed(0)
    return gradients(lambda x: backlight.nn.LSTM(20, 32, dtype=x.dtype)(x)[0], tensor((9, 70, 20)))


def embedding():
    index = backlight.tensor(np.random.default_rng(0).integers(0, 300, 3000))
    return gradients(lambda w: F.embedding(index, w), tensor((300, 100)))


def scatter():
    index = backlight.tensor(np.random.default_rng(0).integers(0, 300, (3000, 70)))
    return gradients(lambda w: w.scatter_add(0, index, w.gather(0, index)), tensor((300, 70)))


PROGRAMS = {
    "elementwise": lambda: gradients(lambda x, y: F.gelu(x) * y.tanh() + x.exp(), tensor((731, 733)), tensor((731, 733), 1)),
    "softmax": lambda: gradients(lambda x: x.softmax(-1) + x.log_softmax(-1), tensor((1001, 333))),
    "layer norm": lambda: gradients(lambda x, w, b: F.layer_norm(x, (333,), w, b), tensor((1001, 333)), tensor((333,)), tensor((333,), 1)),
    "sums": lambda: gradients(lambda x: x.sum(-1) + x.sum(), tensor((1031, 1021))),
    "batch norm": lambda: gradients(lambda x, w: F.batch_norm(x, None, None, w, None, True), tensor((16, 33, 20, 20)), tensor((33,))),
    "attention": lambda: gradients(lambda q, k: F.scaled_dot_product_attention(q, k, q, is_causal=True), tensor((3, 5, 200, 32)), tensor((3, 5, 200, 32), 1)),
    "convolution": lambda: gradients(lambda x, w: F.conv2d(x, w, None, 2, 1), tensor((9, 5, 33, 35)), tensor((13, 5, 3, 3))),
    "3x3 convolution": lambda: gradients(lambda x, w: F.conv2d(x, w, None, 1, 1), tensor((9, 20, 33, 35)), tensor((70, 20, 3, 3))),
    "group norm": lambda: gradients(lambda x, w: F.group_norm(x, 3, w), tensor((16, 33, 20, 20)), tensor((33,))),
    "pooling": lambda: gradients(lambda x: F.max_pool2d(x, 3, 2) + F.avg_pool2d(x, 3, 2), tensor((16, 33, 20, 20))),
    "LSTM": lstm,
    "embedding": embedding,
    "scatter": scatter,
    "Adam": adam,
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_do_not_depend_on_the_number_of_threads(name):
    before, results = threads.get_threads(), {}
    try:
        PROGRAMS[name]()  # kernels run in one thread when they are compiled
        for number in (1, 2, 5):
            threads.set_threads(number)
            results[number] = [PROGRAMS[name]() for _ in range(3)]
    finally:
        threads.set_threads(before)
    for number in results:
        for again in results[number]:
            for one, other in zip(results[1][0], again, strict=True):
                np.testing.assert_array_equal(one, other)


def test_the_number_of_threads():
    before = backlight.get_num_threads()
    try:
        backlight.set_num_threads(3)
        assert threads.get_threads() == backlight.get_num_threads() == 3
        backlight.set_num_interop_threads(1)
        assert backlight.get_num_threads() == 3
    finally:
        backlight.set_num_threads(before)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, None), ({"OMP_NUM_THREADS": "3"}, 3), ({"NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "5,2"}, 2), ({"OMP_NUM_THREADS": "no"}, None)],
)  # fmt: skip
def test_the_environment_bounds_the_number_of_threads(given, expected):
    code = "import backlight, sys; print(backlight.get_num_threads(), 'numba' in sys.modules)"
    environment = {"OMP_NUM_THREADS": "", "NUMBA_NUM_THREADS": "", **given}
    number = expected or len(os.sched_getaffinity(0))
    assert python(code, **environment) == f"{number} False\n"


def test_setting_the_number_of_threads_compiles_nothing():
    assert python("import backlight, sys; backlight.set_num_threads(2); print('numba' in sys.modules)") == "False\n"


def test_helpers_take_chunks(two_threads):
    """The calling thread and a helper share the queue; every chunk is computed once."""
    barrier, taken = threading.Barrier(2, timeout=30), []

    class Kernel:
        signatures = overloads = [()]

        def __call__(self, _queue):
            barrier.wait()  # only if both are here
            taken.append(threading.current_thread().name)

    threads.run(Kernel(), 100)
    assert len(taken) == 2 and "backlight kernels" in taken


@pytest.mark.parametrize("place", ["caller", "helper"])
def test_an_error_in_a_kernel_is_raised(two_threads, place):
    """In whichever thread: the other one isn't waited for forever, and the next kernel runs as ever."""
    barrier = threading.Barrier(2, timeout=30)

    class Kernel:
        signatures = overloads = [()]

        def __call__(self, _queue):
            barrier.wait()
            if (threading.current_thread().name == "backlight kernels") == (place == "helper"):
                raise MemoryError("no memory")

    for _ in range(3):
        with pytest.raises(MemoryError, match="no memory"):
            threads.run(Kernel(), 100)
    PROGRAMS["softmax"]()


def test_an_interrupted_call_leaves_its_helpers(two_threads):
    """Ctrl-C while a helper still works: it is left to itself, and the next call has others."""
    end, started = threading.Event(), threading.Barrier(2, timeout=30)

    class Kernel:
        signatures = overloads = [()]

        def __call__(self, _queue):
            started.wait()
            if threading.current_thread().name == "backlight kernels":
                end.wait(30)

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            threads.run(Kernel(), 100)
    finally:
        signal.signal(signal.SIGALRM, before)
    for program in ("softmax", "sums"):
        first = PROGRAMS[program]()
        for one, other in zip(first, PROGRAMS[program]()):
            np.testing.assert_array_equal(one, other)
    end.set()


def test_threads_of_the_program(two_threads):
    """Eight threads call kernels and BLAS at once: right results, and nobody waits forever."""
    x, w = tensor((300, 301)).detach(), tensor((301, 64), 1).detach()

    def compute():
        y = (x.exp() * 0.5).softmax(-1)
        return (y @ w).numpy(), F.layer_norm(y.tanh(), (301,)).numpy()

    expected, wrong = compute(), []

    def work():
        for _ in range(50):
            if not all(np.allclose(a, b, 1e-5, 1e-6) for a, b in zip(compute(), expected)):
                wrong.append(1)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert not any(worker.is_alive() for worker in workers) and not wrong


USE = """
import os, sys, threading, warnings
warnings.filterwarnings("ignore", category=DeprecationWarning)  # newer Pythons warn of forks beside threads
import numpy as np, backlight as torch

def use(size=700):
    x = torch.ones(size, size)
    y = (x * 0.5).tanh().softmax(-1).sum().item()
    assert abs(y - size) < 1e-2, y
"""


@pytest.mark.parametrize("before", [False, True])
def test_forked_children_use_kernels(before):
    """before: whether the parent's helpers run already."""
    code = f"""{USE}
if {before}:
    for _ in range(3):
        use()
children = []
for _ in range(5):
    pid = os.fork()
    if not pid:
        for _ in range(3):
            use()
        os._exit(0)
    children.append(pid)
use()
print([os.waitpid(pid, 0)[1] for pid in children])
"""
    assert python(code) == "[0, 0, 0, 0, 0]\n"


def test_forks_while_other_threads_compile_and_run_kernels():
    code = f"""{USE}
use()
torch.nn.functional  # imported now: Python keeps a module's lock in a child that is forked while another thread imports it
end = False

def work():
    size = 600
    while not end:
        use(size)
        torch.ones(200, 200).double().exp().erf().log_softmax(-1)
        torch.nn.functional.gelu(torch.ones(200, 200))
        size += 1

worker = threading.Thread(target=work)
worker.start()
codes = []
for _ in range(20):
    pid = os.fork()
    if not pid:
        use()
        torch.nn.functional.silu(torch.ones(200, 200))  # which nobody has compiled
        os._exit(0)
    codes.append(os.waitpid(pid, 0)[1])
end = True
worker.join()
print(set(codes))
"""
    assert python(code) == "{0}\n"


def test_processes_and_loaders():
    code = f"""{USE}
import multiprocessing
from torch_data import Squares
for _ in range(3):
    use()
process = multiprocessing.get_context("fork").Process(target=use)
process.start()
process.join()
print(process.exitcode)
loader = torch.utils.data.DataLoader(Squares(), batch_size=2, num_workers=2)
for batch in loader:
    use()
print(len(loader), batch.shape)
"""
    dataset = """
class Squares(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        return (torch.full((300, 300), float(i)) * 2).exp().log_softmax(-1)
"""
    code = code.replace("from torch_data import Squares", dataset)
    assert python(code) == "0\n4 (2, 300, 300)\n".replace("(2, 300, 300)", "torch.Size([2, 300, 300])")


def test_helpers_never_keep_a_process_from_ending():
    code = f"""{USE}
import atexit
use(); use()
atexit.register(lambda: (use(), print("end")))
worker = threading.Thread(target=lambda: [use() for _ in iter(int, 1)], daemon=True)
worker.start()
"""
    assert python(code, seconds=60) == "end\n"


# The environment

NUMBERS = """
import sys, warnings, backlight as torch
warnings.simplefilter("ignore")
torch.manual_seed(0)
x = torch.linspace(-3, 3, 60000).reshape(200, 300).requires_grad_()
y = torch.nn.functional.gelu(x).softmax(-1).log() * x.tanh()
(y * y).sum().backward()
print("numba" in sys.modules, float(y.abs().sum()), float(x.grad.abs().sum()))
"""


def test_without_kernels():
    with_kernels, without = (python(NUMBERS, BACKLIGHT_KERNELS=choice).split() for choice in ("", "numpy"))
    assert (with_kernels[0], without[0]) == ("True", "False")
    np.testing.assert_allclose([float(x) for x in with_kernels[1:]], [float(x) for x in without[1:]], rtol=1e-4)


def test_without_numba():
    missing = "import importlib.util as u; find = u.find_spec; u.find_spec = lambda name, *a: None if name == 'numba' else find(name, *a)"
    printed = python(f"{missing}\n{NUMBERS}\nimport backlight.optim\np = torch.nn.Parameter(x.detach())\np.grad = x.detach()\n"
                     "torch.optim.Adam([p]).step(); print('numba' in sys.modules, torch.__version__ != '')")  # fmt: skip
    assert printed.split()[0] == "False" and printed.split()[-2:] == ["False", "True"]


def test_numba_that_does_not_compile():
    assert python(NUMBERS, NUMBA_DISABLE_JIT="1").startswith("False ")


def test_kernels_for_all_sizes():
    code = "import backlight as torch, sys; torch.ones(3).exp(); print('numba' in sys.modules)"
    assert python(code) == "False\n"
    assert python(code, BACKLIGHT_KERNELS="always") == "True\n"


def test_an_unknown_choice_is_an_error():
    code = "try:\n    import backlight\nexcept ImportError as error:\n    print(error)"
    assert python(code, BACKLIGHT_KERNELS="fast") == "BACKLIGHT_KERNELS is 'fast': expected 'numpy', 'always', or nothing\n"


def test_small_programs_do_not_import_numba():
    code = f"import runpy, sys; runpy.run_path({str(EXAMPLES / 'digits.py')!r}, run_name='__main__'); print('numba' in sys.modules)"
    assert python(
        code.replace("runpy.run_path", "import backlight.alias; backlight.alias.install(); runpy.run_path", 1)
    ).endswith("False\n")


# The cache

CHEAP = "import backlight as torch; print(float(torch.ones(9000).exp().sum() / 9000))"


def files(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in Path(folder).rglob("*") if path.is_file()}


def test_the_second_process_compiles_nothing(tmp_path):
    first = python(CHEAP, cache=tmp_path / "new" / "cache")
    written = files(tmp_path)
    assert len(written) == 1 and next(iter(written)).suffix == ".nbc"
    assert python(CHEAP, cache=tmp_path / "new" / "cache") == first
    assert files(tmp_path) == written
    assert next(iter(written)).parent.stat().st_mode & 0o77 == 0  # its contents are run


def test_a_damaged_file_is_replaced(tmp_path):
    first = python(CHEAP, cache=tmp_path)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    for damaged in (b"", whole[:1000], b"nonsense"):
        path.write_bytes(damaged)
        assert python(CHEAP, cache=tmp_path) == first
        assert path.stat().st_size == len(whole)


def test_other_versions_have_other_folders(tmp_path):
    python(CHEAP, cache=tmp_path)
    (folder,) = tmp_path.iterdir()
    changed = "import backlight.kernels.compiling as c; c._STAMP = '0123456789abcdef'\n" + CHEAP
    old, recent = tmp_path / "kernels-00000000000000aa", tmp_path / "kernels-00000000000000bb"
    for other in (old, recent):
        other.mkdir()
    os.utime(old, (0, 0))
    python(changed, cache=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {folder.name, recent.name, "kernels-0123456789abcdef"}


def test_the_stamp_follows_the_sources(tmp_path, monkeypatch):
    from backlight.kernels import compiling

    for path in Path(compiling.__file__).parent.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(compiling, "__file__", str(tmp_path / "compiling.py"))
    before, source = compiling._stamp(), tmp_path / "scalar.py"
    text = source.read_text()
    source.write_text(text + "\n")
    assert compiling._stamp() != before
    source.write_text(text)
    assert compiling._stamp() == before


@pytest.mark.parametrize("kind", ["file", "no permission", "vanishes"])
def test_a_cache_that_cannot_be_written(kind, tmp_path):
    """One warning, and right results."""
    cache = tmp_path / "cache"
    code = CHEAP + "; torch.ones(9000).tanh(); torch.ones(9000).log()"
    if kind == "file":
        cache.write_text("")
    elif kind == "no permission":
        if os.geteuid() == 0:
            cache = Path("/proc/nothing")
        else:
            cache.mkdir(0o500)
    else:
        python(CHEAP, cache=cache)
        code = (
            f"import backlight.kernels.compiling as c, shutil; shutil.rmtree({str(cache)!r}); open({str(cache)!r}, 'w'); {code}"
        )
    printed = python(code, cache=cache)
    assert printed.count("compiled kernels can't be kept") == 1 and "2.718" in printed


def test_without_a_home_directory():
    code = "import pathlib\ndef home(): raise RuntimeError('no home')\npathlib.Path.home = home\n" + CHEAP
    printed = python(code, BACKLIGHT_CACHE="", XDG_CACHE_HOME="")
    assert printed.count("compiled kernels can't be kept (no home)") == 1 and "2.718" in printed


def test_processes_that_compile_at_once(tmp_path):
    environment = {**os.environ, "BACKLIGHT_CACHE": str(tmp_path)}
    code = "import backlight as torch; x = torch.ones(100, 100, dtype=torch.{}); print(float(x.softmax(-1).sum()))"
    running = [
        subprocess.Popen([sys.executable, "-c", code.format(kind)], env=environment, stdout=subprocess.PIPE, text=True)
        for kind in ("float32", "float64") * 2
    ]
    for process in running:
        printed, _errors = process.communicate(timeout=120)
        assert abs(float(printed) - 100) < 1e-3
    written = files(tmp_path)
    assert len(written) == 2
    for kind in ("float32", "float64"):
        python(code.format(kind), cache=tmp_path)
    assert files(tmp_path) == written


# Warming up

NOTING = """
import backlight.kernels.compiling as compiling
path, used = compiling._Files._path, set()

def noting(self, key):
    used.add(path(self, key).name)
    return path(self, key)

compiling._Files._path = noting
"""
PROGRAM = """
import backlight as torch
from backlight import nn
F = nn.functional
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = [part.reshape(n, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).split(width, -1)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, length, width)
        x = x + self.out(y)
        return x + self.mlp(self.norm2(x))

def train(model, inputs, targets, optimizer, loss):
    for _ in range(3):
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

gpt = nn.Sequential(nn.Embedding(200, 64), Block(64, 2), Block(64, 2), nn.LayerNorm(64), nn.Linear(64, 200))
tokens = torch.randint(0, 200, (8, 40))
cross_entropy = lambda y, t: F.cross_entropy(y.reshape(-1, 200), t.reshape(-1))
train(gpt, tokens, tokens, torch.optim.AdamW(gpt.parameters()), cross_entropy)

cnn = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32),
    nn.SiLU(), nn.Conv2d(32, 32, 3, stride=2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(288, 10))
images = torch.randn(16, 3, 32, 32)
train(cnn, images, torch.randint(0, 10, (16,)), torch.optim.SGD(cnn.parameters(), lr=0.1, momentum=0.9), F.cross_entropy)
cnn.eval()(images)

rnn = nn.LSTM(20, 64, 2, bidirectional=True)
(rnn(torch.randn(9, 33, 20))[0] ** 2).sum().backward()
gru = nn.GRU(20, 64)
gru(torch.randn(9, 33, 20))[0].tanh().mean().backward()

x, y = torch.randn(900, 901, requires_grad=True), torch.randn(900, 901)
for z in (x * y + x / (y.abs() + 1) - 2 * x, x.exp().log1p().sqrt() ** 1.7, F.softplus(x) * F.elu(x), (x.sigmoid() - 0.5).relu(), x * x.mean()):
    z.sum().backward()
(x.log_softmax(-1) * y).sum(-1).mean().backward()
index = torch.randint(0, 900, (300,))
x[index].square().sum().backward()
print(*sorted(used), sep="\\n")
"""


def test_warming_up_compiles_what_programs_use():
    """Every kernel of every file, and the files that a program reads are among those that warming up reads or writes."""
    warm = f"""{NOTING}
import importlib, pkgutil
from backlight import kernels
from backlight.kernels import warmup
for info in pkgutil.iter_modules(kernels.__path__):
    importlib.import_module(f"backlight.kernels.{{info.name}}")
for task in warmup.tasks(["float32"]):
    warmup.run(task)
print([kernel.py_func.__name__ for kernel in compiling.made if not kernel.signatures])
print(*sorted(used), sep="\\n")
"""
    missing, *warm = python(warm, seconds=300).split("\n")
    assert missing == "[]"
    typical = python(NOTING + PROGRAM, seconds=300).split("\n")
    assert len(typical) > 40
    assert set(typical) <= set(warm), set(typical) - set(warm)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_warmup_command(jobs, tmp_path):
    few = "from backlight.kernels import warmup; warmup._GROUPS = {key: warmup._GROUPS[key] for key in ('optimizers', 'checksums, random numbers, powers')}"
    code = f"{few}\nfrom backlight.cli import main\nif __name__ == '__main__': print(main(['warmup', '--jobs', '{jobs}']))"
    printed = python(code, cache=tmp_path)
    written = files(tmp_path)
    folder = next(iter(written)).parent
    assert len(written) == 9
    assert printed.startswith("compiled 9 kernels in ") and printed.endswith(f" s: {folder}\n0\n")
    assert python(code, cache=tmp_path) == f"all 9 kernels were there: {folder}\n0\n"
    next(iter(written)).unlink()
    assert ", 8 were there: " in python(code, cache=tmp_path)


def test_warmup_without_kernels_or_cache():
    code = "from backlight.cli import main; print(main(['warmup']))"
    assert "switched off" in python(code, BACKLIGHT_KERNELS="numpy") and python(code, BACKLIGHT_KERNELS="numpy").startswith(
        "1\n"
    )
    printed = python(code, cache="/proc/nothing")
    assert "can't be kept" in printed and printed.startswith("2\n")


# Memory


@pytest.mark.parametrize(
    ("given", "expected"), [("", "done"), ("1000000", "done"), ("0", "done"), ("much", "expected a number of bytes")]
)
def test_kept_memory(given, expected):
    code = """
import backlight as torch
try:
    for _ in range(3):
        torch.ones(3000, 3000).exp()
    torch.ones(3)
    from backlight.kernels import memory
    memory.release()
    print("done")
except ImportError as error:
    print(error)
"""
    assert expected in python(code, BACKLIGHT_KEPT_MEMORY=given)
