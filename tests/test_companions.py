"""What programs touch beside tensors and layers: testing, jit, compile, backends, profiler, processes, threads, NumPy, TensorBoard."""

import contextlib
import io
import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.utils.dlpack

import backlight

PACKAGES = (backlight, torch)


def outcome(function, *args):
    """The result's text, or the error's, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = repr(function(*args))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    return result.replace("backlight.tensor.", "torch."), [str(w.message) for w in caught]


# -- testing ------------------------------------------------------------------------------------------------------------


def x(t):
    return t.tensor([1.0, 2.0, 3.0])


CLOSE = {
    "different": lambda t, c: c(x(t), x(t) + 1),
    "one different": lambda t, c: c(x(t), t.tensor([1.0, 2.0, 3.001])),
    "close": lambda t, c: c(x(t), x(t) + 1e-6),
    "dtype": lambda t, c: c(x(t), x(t).double()),
    "dtype unchecked": lambda t, c: c(x(t), x(t).double(), check_dtype=False),
    "shape": lambda t, c: c(x(t), x(t)[:2]),
    "scalar tensors": lambda t, c: c(t.tensor(1.0), t.tensor(2.0)),
    "floats": lambda t, c: c(1.0, 2.0),
    "ints": lambda t, c: c(1, 2),
    "complex": lambda t, c: c(1j, 2j),
    "close floats": lambda t, c: c(1.0, 1.0 + 1e-9),
    "int and float": lambda t, c: c(1, 1.0),
    "bools": lambda t, c: c(True, False),
    "lists": lambda t, c: c([x(t), x(t)], [x(t), x(t) + 1]),
    "nested": lambda t, c: c([1, [2.0]], [1, [3.0]]),
    "lengths": lambda t, c: c([x(t)], [x(t), x(t)]),
    "dicts": lambda t, c: c({"a": x(t)}, {"a": x(t) + 1}),
    "keys": lambda t, c: c({"a": 1}, {"b": 1}),
    "strings": lambda t, c: c("a", "a"),
    "tensor and float": lambda t, c: c(x(t), 1.0),
    "tensor and array": lambda t, c: c(x(t), x(t).numpy()),
    "arrays": lambda t, c: c(x(t).numpy(), x(t).numpy() + 1),
    "None": lambda t, c: c(None, None),
    "tensor and None": lambda t, c: c(x(t), None),
    "nan": lambda t, c: c(x(t), t.tensor([math.nan, 2, 3])),
    "equal nan": lambda t, c: c(t.tensor([math.nan]), t.tensor([math.nan]), equal_nan=True),
    "infinity": lambda t, c: c(t.tensor([1.0, math.inf]), t.tensor([1.0, 3.0])),
    "only rtol": lambda t, c: c(x(t), x(t), rtol=0),
    "exact": lambda t, c: c(x(t), x(t) + 1, rtol=0, atol=0),
    "message": lambda t, c: c(x(t), x(t) + 1, msg="mine"),
    "message function": lambda t, c: c(x(t), x(t) + 1, msg=lambda m: f"before\n{m}"),
    "integers": lambda t, c: c(t.tensor([1, 2]), t.tensor([1, 3])),
    "bool tensors": lambda t, c: c(t.tensor([True]), t.tensor([False])),
    "matrix": lambda t, c: c(t.ones(2, 2, 2), t.zeros(2, 2, 2)),
    "bfloat16": lambda t, c: c(x(t).bfloat16(), x(t).bfloat16() * 1.1),
    "complex tensors": lambda t, c: c(t.tensor([1 + 1j]), t.tensor([1 + 2j])),
    "stride": lambda t, c: c(t.ones(2, 2).t().contiguous().t(), t.ones(2, 2), check_stride=True),
    "objects": lambda t, c: c(t.float32, t.float32),
}


@pytest.mark.parametrize("name", CLOSE)
def test_assert_close_says_what_pytorch_says(name):
    texts = [outcome(CLOSE[name], t, t.testing.assert_close) for t in PACKAGES]
    assert texts[0][0].replace("backlight.dtypes.dtype", "torch.dtype") == texts[1][0]


def test_make_tensor_keeps_to_its_bounds():
    for t in PACKAGES:
        for name in ("float32", "float64", "int64", "uint8", "bool", "complex64", "bfloat16"):
            dtype = getattr(t, name)
            made = t.testing.make_tensor(4, 5, dtype=dtype, device="cpu", low=0, high=2, noncontiguous=True, exclude_zero=True)
            assert made.dtype is dtype and made.shape == (4, 5) and not made.is_contiguous()
            assert (made != 0).all()
        assert t.testing.make_tensor((3,), dtype=t.float32, device="cpu", requires_grad=True).requires_grad


# -- jit, compile, backends ---------------------------------------------------------------------------------------------


def test_compiling_returns_what_it_is_given():
    def double(v):
        return v * 2

    module = backlight.nn.Linear(2, 2)
    for make in (
        backlight.jit.script,
        lambda f: backlight.jit.trace(f, backlight.ones(1, 2)),
        lambda f: backlight.jit.trace(f, (backlight.ones(1, 2),)),
        backlight.jit.script_if_tracing,
        backlight.jit.export,
        backlight.jit.ignore,
        backlight.jit.unused,
        backlight.compiler.disable,
    ):
        assert make(double) is double
        assert make(module) is module
    assert backlight.jit.ignore(drop=True)(double) is double
    assert not (backlight.jit.is_scripting() or backlight.jit.is_tracing() or backlight.compiler.is_compiling())
    assert backlight.jit.annotate(int, 3) == 3
    with pytest.raises(NotImplementedError, match="TorchScript files hold compiled programs"):
        backlight.jit.load("x.pt")
    with pytest.raises(NotImplementedError, match="writes a compiled graph"):
        backlight.onnx.export(module, backlight.ones(1, 2), "x.onnx")
    with pytest.raises(NotImplementedError, match="Backlight downloads nothing"):
        backlight.hub.load("pytorch/vision", "resnet18")


def test_compile_says_once_that_it_compiles_nothing(monkeypatch):
    monkeypatch.setattr(backlight, "_said", set())
    with pytest.warns(UserWarning, match="runs eagerly") as caught:
        assert backlight.compile(len) is len

        @backlight.compile(fullgraph=True)
        def double(v):
            return v * 2

    assert len(caught) == 1
    assert double(2) == 4


QUESTIONS = """t.cuda.is_available()
t.cuda.device_count()
t.backends.mps.is_available()
t.backends.mps.is_built()
t.backends.cuda.is_built()
t.backends.cudnn.is_available()
t.backends.cuda.matmul.allow_tf32
t.backends.cudnn.benchmark
t.backends.cudnn.deterministic
t.device("cuda" if t.cuda.is_available() else "cpu")
t.cuda.memory_allocated()
t.cuda.manual_seed_all(1)
t.get_num_threads() > 0
t.are_deterministic_algorithms_enabled()
[f() for f in (lambda: t.use_deterministic_algorithms(True), t.are_deterministic_algorithms_enabled)]
[f() for f in (lambda: t.use_deterministic_algorithms(False), t.are_deterministic_algorithms_enabled)]
t.set_num_threads(0)
t.set_num_threads("a") if False else 1
setattr(t.backends.cudnn, "benchmark", True)
t.ones(2).to("cuda" if t.cuda.is_available() else "cpu").device""".splitlines()


@pytest.mark.parametrize("question", QUESTIONS)
def test_programs_that_ask_about_the_machine(question, monkeypatch):
    # PyTorch's own test files, which other tests import, forbid changing its backends' flags
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
    texts = [outcome(eval, question, {"t": t}) for t in PACKAGES]
    assert texts[0] == texts[1]


def test_threads_can_be_set():
    before = backlight.get_num_threads()
    try:
        backlight.set_num_threads(1)
        assert backlight.get_num_threads() == 1
    finally:
        backlight.set_num_threads(before)


# -- the random stream --------------------------------------------------------------------------------------------------


def test_fork_rng_and_states():
    drawn = []
    for t in PACKAGES:
        t.manual_seed(3)
        with t.random.fork_rng():
            inside = t.rand(2)
        with t.random.fork_rng(enabled=False):
            after = t.rand(2)
        state = t.random.get_rng_state()
        first = t.rand(2)
        t.random.set_rng_state(state)
        drawn.append([v.tolist() for v in (inside, after, first, t.rand(2))] + [t.random.initial_seed()])
    assert drawn[0] == drawn[1]
    assert drawn[0][0] == drawn[0][1] and drawn[0][2] == drawn[0][3]


# -- profiles -----------------------------------------------------------------------------------------------------------


PROFILED = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

for plan in eval(sys.argv[1]):
    ready, planned = [], schedule(**plan)
    with profile(activities=[ProfilerActivity.CPU], schedule=planned, on_trace_ready=lambda p: ready.append(p.step_num)) as prof:
        for _ in range(9):
            with record_function("mine"):
                (torch.ones(3) * 2).sum()
            prof.step()
    counts = {e.key: e.count for e in prof.key_averages() if e.key in ("mine", "aten::mul", "aten::sum")}
    print(plan, ready, prof.step_num, sorted(counts.items()), [planned(i).name for i in range(12)])
"""
PLANS = [
    {"wait": 1, "warmup": 1, "active": 2, "repeat": 2},
    {"wait": 1, "warmup": 1, "active": 2, "repeat": 1},
    {"wait": 0, "warmup": 0, "active": 1, "skip_first": 2, "repeat": 1},
    {"wait": 1, "warmup": 0, "active": 3, "skip_first": 1, "skip_first_wait": 1, "repeat": 2},
]


def test_profiles_by_schedule(tmp_path):
    """In processes of their own: PyTorch's profiler may crash where several profiles follow each other in one."""
    script = tmp_path / "profiled.py"
    script.write_text(PROFILED)
    for plan in PLANS:
        commands = ([sys.executable, "-W", "ignore", str(script)], [sys.executable, "-m", "backlight", "run", str(script)])
        outputs = [
            subprocess.run([*command, repr([plan])], capture_output=True, text=True, check=True).stdout for command in commands
        ]
        assert outputs[1] == outputs[0]


def test_a_profile_writes_traces(tmp_path):
    from backlight import profiler

    with profiler.profile(on_trace_ready=profiler.tensorboard_trace_handler(str(tmp_path), "me", use_gzip=True)) as prof:
        backlight.ones(3).sum()
    assert [p.name.startswith("me.") and p.name.endswith(".pt.trace.json.gz") for p in tmp_path.iterdir()] == [True]
    prof.export_chrome_trace(tmp_path / "trace.json")
    assert "aten::sum" in (tmp_path / "trace.json").read_text()
    assert "aten::sum" in prof.key_averages().table(sort_by="cpu_time_total", row_limit=5)
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        profiler.schedule(wait=0, warmup=0, active=0)


# -- processes ----------------------------------------------------------------------------------------------------------

SHARED = """
import torch, torch.multiprocessing as mp

def work(rank, model, table):
    torch.manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    table[rank] += rank + 1

def fail(rank):
    if rank == 1:
        raise ValueError("on purpose")

def die(rank):
    import os, signal
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    model, table = torch.nn.Linear(2, 1), torch.zeros(2)
    torch.nn.init.ones_(model.weight)
    model.share_memory()
    table.share_memory_()
    print(model.weight.is_shared(), table.is_shared(), table[1:].is_shared(), torch.ones(1).is_shared())
    for rank in range(2):
        process = mp.get_context("fork").Process(target=work, args=(rank, model, table))
        process.start()
        process.join()
    print(model.weight.data.mul(100).round().tolist(), table.tolist())
    for function in (fail, die):
        try:
            mp.start_processes(function, nprocs=2, start_method="fork")
        except mp.ProcessRaisedException as error:
            print(type(error).__name__, error.error_index, str(error).strip().splitlines()[0], str(error).strip().splitlines()[-1])
        except mp.ProcessExitedException as error:
            print(type(error).__name__, error.error_index, error, error.exit_code, error.signal_name)
    queue = mp.get_context("fork").SimpleQueue()
    queue.put(torch.arange(3))
    print(queue.get())
"""


def test_processes_share_memory_and_report_errors(tmp_path):
    script = tmp_path / "shared.py"
    script.write_text(SHARED)
    outputs = [
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
        for command in ([sys.executable, str(script)], [sys.executable, "-m", "backlight", "run", str(script)])
    ]
    assert outputs[1] == outputs[0]


# -- NumPy --------------------------------------------------------------------------------------------------------------

ARRAYS = """np.sin(x)
np.add(x, 1)
np.multiply(a, x)
np.isnan(x)
np.equal(x, x)
np.asarray(x)
np.array(x)
np.sum(x)
np.mean(x)
np.concatenate([x, x])
np.dot(y, y)
np.clip(x, 0, 1)
np.argmax(x)
np.linalg.norm(x)
np.float64(2) * x
x * np.float64(2)
np.int64(2) * x
x + a
a + x
a - x
x - a
a / x
x / a
a ** x
x == a
x != a
a == x
x < a
a > x
x == np.array(1.0)
x == [1, 2, 3]
x == None
x.add_(a)
x.__iadd__(a)
x.__imul__(a)
x.__itruediv__(a)
r + a
np.sin(r)
np.asarray(r)
t.as_tensor(a)
t.from_numpy(a)
t.tensor(np.float64(1.5))
t.tensor(np.int32(3))
x[np.int64(1)]
x[np.array([0, 1])]
x[np.array([True, False, True])]
t.zeros(np.int64(2))
t.arange(np.int64(3))
np.from_dlpack(x)
t.utils.dlpack.from_dlpack(t.utils.dlpack.to_dlpack(x))
math.sqrt(x[1])
a[t.tensor([0, 2])]
np.matmul(y, y)
np.cumsum(x)
np.reshape(x, (1, 3))""".splitlines()


@pytest.mark.parametrize("expression", ARRAYS)
def test_tensors_and_arrays_mix_as_in_pytorch(expression):
    texts = []
    for t in PACKAGES:
        names = {
            "t": t, "np": np, "math": math, "x": t.tensor([1.0, 2.0, 3.0]), "y": t.ones(2, 2), "a": np.array([1, 5, 3], "f4"),
            "r": t.ones(3, requires_grad=True),
        }  # fmt: skip
        texts.append(outcome(eval, expression, names)[0])
    if texts[1].startswith("TypeError"):  # PyTorch lists all its overloads
        texts = [text.partition(":")[0] for text in texts]
    assert texts[0] == texts[1]


def test_half_precision_times_a_number_rounds_once():
    for name in ("bfloat16", "float16"):
        for expression in ("v * 1.1", "v / 0.3", "1.1 * v", "v + 1.1", "v - 0.3", "v * z", "v / z", "v.mul_(1.1)"):
            results = []
            for t in PACKAGES:
                t.manual_seed(0)
                v = t.randn(500).to(getattr(t, name))
                results.append(eval(expression, {"v": v, "z": t.tensor(0.3)}).float().tolist())
            assert results[0] == results[1], (name, expression)


# -- TensorBoard --------------------------------------------------------------------------------------------------------


def test_summary_writer(tmp_path):
    pytest.importorskip("tensorboardX")
    from backlight.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", backlight.tensor(0.5), 1)
        writer.add_scalars("both", {"a": backlight.tensor(1.0), "b": 2.0}, 1)
        writer.add_histogram("weights", backlight.randn(100, requires_grad=True), 1)
        writer.add_image("image", backlight.rand(3, 4, 4), 1)
        writer.add_text("words", "hello", 1)
        with pytest.raises(NotImplementedError, match="TorchScript"):
            writer.add_graph(backlight.nn.Linear(1, 1))
        assert writer.get_logdir() == str(tmp_path)
    events = b"".join(p.read_bytes() for p in tmp_path.rglob("events*"))
    assert all(name in events for name in (b"loss", b"weights", b"image", b"words"))


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.delitem(sys.modules, "backlight.utils.tensorboard", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"backlight\[tensorboard\]"):
        import backlight.utils.tensorboard  # noqa: F401


def test_importing_what_programs_import_prints_nothing():
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        for name in "amp jit compiler backends profiler multiprocessing testing mps distributions".split():
            getattr(backlight, name)
    assert stream.getvalue() == ""


# The lines that begin programs: each must work under the alias as under PyTorch.
IMPORTS = """
from torch import Tensor, nn, optim, cuda, linalg as LA
from torch.nn import functional as F
from torch.nn.modules.utils import _pair, _single, _triple, _quadruple, _ntuple, _reverse_repeat_tuple
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd
from torch.nn.modules.loss import _Loss, _WeightedLoss
from torch.nn.modules.activation import MultiheadAttention
from torch.nn.modules.rnn import LSTM, RNNBase
from torch.nn.common_types import _size_2_t
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DataParallel, DistributedDataParallel as DDP
from torch.distributed import init_process_group, destroy_process_group
from torch.nn.utils.rnn import pad_sequence, PackedSequence
from torch.nn.utils.clip_grad import clip_grad_norm_
from torch.optim.optimizer import Optimizer
from torch.optim.lr_scheduler import LRScheduler, _LRScheduler, LambdaLR
from torch.optim.swa_utils import AveragedModel
from torch.optim.adamw import AdamW
from torch.utils.data.distributed import DistributedSampler
from torch.utils.data.dataloader import default_collate
from torch.utils.checkpoint import checkpoint
from torch.autograd import Variable, Function
from torch.autograd.function import once_differentiable
from torch.cuda.amp import autocast, GradScaler
from torch.distributions.multivariate_normal import MultivariateNormal
from torch.distributions.transforms import AffineTransform
from torch.serialization import MAP_LOCATION, safe_globals
from torch.types import Number, Device
from torch.overrides import has_torch_function, handle_torch_function
from torch.utils._pytree import tree_map
import torch.backends.cudnn as cudnn, torch.multiprocessing as mp, torch.distributed as dist
import torch.cpu, torch.xpu, torch.mps, torch.__config__, torch.onnx, torch.hub, torch.utils.model_zoo
print(torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu")
print(dist.is_available() and dist.is_initialized(), torch.xpu.is_available(), torch.cpu.is_available(), torch.cpu.device_count())
print(_pair(3), _triple([1, 2, 3]), _ntuple(4)(2), _reverse_repeat_tuple((1, 2), 2), _single("ab"))
state = nn.DataParallel(nn.Linear(1, 1)).state_dict()
consume_prefix_in_state_dict_if_present(state, "module.")
print(list(state), dict(state._metadata))
print(isinstance(nn.BatchNorm2d(1), _BatchNorm), isinstance(nn.Dropout(), _DropoutNd), issubclass(nn.MSELoss, _Loss))
with sdpa_kernel([SDPBackend.MATH]):
    print(F.scaled_dot_product_attention(torch.ones(1, 2, 2), torch.ones(1, 2, 2), torch.ones(1, 2, 2)).tolist())


class Logged:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, [t.__name__ for t in types], args, kwargs


def api(*values):
    return handle_torch_function(api, values, *values) if has_torch_function(values) else sum(values)


value = Logged()
x = torch.ones(2)
for error in (torch._C._LinAlgError, torch.OutOfMemoryError, torch.cuda.OutOfMemoryError, torch.AcceleratorError):
    print(error.__name__, error.__bases__)
try:
    torch.linalg.solve(torch.zeros(2, 2), torch.ones(2))
except torch._C._LinAlgError as error:
    print(error)
print(torch._C._get_tracing_state(), x._cdata == x._cdata, x._cdata == x.detach()._cdata)
for call in (
    dist.get_rank, dist.get_world_size, dist.barrier, destroy_process_group, lambda: dist.all_reduce(x), lambda: dist.broadcast(x, 0),
    lambda: dist.all_gather([x], x), lambda: dist.send(x, 0), lambda: DDP(nn.Linear(1, 1)), lambda: dist.new_group([0]),
):
    try:
        call()
    except Exception as error:
        print(type(error), error)
print(api(1, 2), api(1, value)[:2], torch.overrides.is_tensor_like(value), torch.overrides.is_tensor_like(3))
"""


def test_the_imports_that_programs_begin_with(tmp_path):
    script = tmp_path / "imports.py"
    script.write_text("import torch\n" + IMPORTS)
    outputs = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in ([sys.executable, "-W", "ignore", str(script)], [sys.executable, "-m", "backlight", "run", str(script)])
    ]
    assert outputs[1] == outputs[0]
