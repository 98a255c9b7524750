"""Every sample of PyTorch's module database through both packages: output, gradients, state_dict, text, pickling.

`python tests/module_sweep.py [REGEX]` prints a table.
"""

from __future__ import annotations

import re
import sys
import types
import warnings
from collections import Counter

import numpy as np
import torch
from torch.testing._internal.common_modules import module_db

import backlight

# Module inputs that need what Backlight doesn't have, with the reason. Everything else counts.
LEFT_OUT: dict[str, str] = {}
TOLERANCE = {torch.float32: {"rtol": 2e-4, "atol": 2e-5}, torch.float64: {"rtol": 1e-8, "atol": 1e-9}}


def leaf(tensor):
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def translate(value, tensor=None, made=None):
    """PyTorch's value as Backlight's: tensors are copied, functions and classes looked up by their name.

    With `tensor` (a function for tensors) nothing else is translated. An object that comes twice stays one object.
    """
    made = {} if made is None else made
    if isinstance(value, dict):
        return type(value)((key, translate(item, tensor, made)) for key, item in value.items())
    if type(value) in (list, tuple):
        return type(value)(translate(item, tensor, made) for item in value)
    if isinstance(value, torch.Tensor):
        if id(value) not in made:
            made[id(value)] = (tensor or translated_tensor)(value)
        return made[id(value)]
    return value if tensor else translated_other(value)


def translated_tensor(value):
    copied = backlight.from_numpy(value.detach().contiguous().numpy().copy())
    if isinstance(value, torch.nn.Parameter):
        return backlight.nn.Parameter(copied, value.requires_grad)
    return copied.requires_grad_(value.requires_grad)


def translated_other(value):
    if isinstance(value, torch.dtype):
        return getattr(backlight, str(value).removeprefix("torch."))
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        settings = {"batch_first": value.self_attn.batch_first, "norm_first": value.norm_first, "dropout": value.dropout.p}
        settings |= {
            "activation": translated_other(value.activation),
            "bias": value.linear1.bias is not None,
            "dtype": translated_other(value.linear1.weight.dtype),
        }
        heads, d, width = value.self_attn.num_heads, value.linear1.in_features, value.linear1.out_features
        ours = backlight.nn.TransformerEncoderLayer(d, heads, width, **settings)
        ours.load_state_dict({name: translated_tensor(t) for name, t in value.state_dict().items()})
        return ours
    if isinstance(value, torch.nn.Module):
        return getattr(backlight.nn, type(value).__name__)()
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
        for ours, theirs in ((backlight.nn.functional, torch.nn.functional), (backlight, torch)):
            for name, other in vars(theirs).items():
                if other is value:
                    return getattr(ours, name)
        return rebound(value)
    return value


def rebound(function):
    """A function of a test, with `torch` and `F` being Backlight."""
    names = {**function.__globals__, "torch": backlight, "F": backlight.nn.functional, "nn": backlight.nn}
    cells = tuple(types.CellType(translate(cell.cell_contents)) for cell in function.__closure__ or ())
    return types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)


def tensors_of(value):
    """All tensors of nested results, in order."""
    if isinstance(value, (torch.Tensor, backlight.Tensor)):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors_of(item)] if isinstance(value, (list, tuple)) else []


def array(tensor):
    return tensor.detach().resolve_conj().numpy() if isinstance(tensor, torch.Tensor) else tensor.detach().array


def check_close(ours, theirs, what, tolerance):
    assert len(ours) == len(theirs), f"{what}: {len(ours)} tensors in place of {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        assert tuple(a.shape) == tuple(b.shape), f"{what}: shape {tuple(a.shape)} in place of {tuple(b.shape)}"
        assert str(a.dtype) == str(b.dtype), f"{what}: {a.dtype} in place of {b.dtype}"
        np.testing.assert_allclose(array(a), array(b), **tolerance, err_msg=what)


def run(package, module, arguments, keywords):
    """(outputs, gradients by name) of one call."""
    package.manual_seed(0)
    output = module(*arguments, **keywords)
    outputs = tensors_of(output)
    inputs = [x for x in tensors_of([list(arguments), keywords]) if x.requires_grad and x.is_leaf]
    wanted = [o for o in outputs if o.requires_grad]
    if not wanted:
        return outputs, {}
    package.manual_seed(1)
    cotangents = [package.randn(o.shape, dtype=package.float64).to(o.dtype) for o in wanted]
    package.autograd.backward(wanted, cotangents)
    named = {f"input {i}": x.grad for i, x in enumerate(inputs)}
    named.update((name, p.grad) for name, p in module.named_parameters())
    return outputs, named


def check(info, sample, dtype, training):
    """AssertionError, or whatever Backlight raises, where the packages differ."""
    name = info.module_cls.__name__
    arguments, keywords = sample.constructor_input.args, sample.constructor_input.kwargs
    torch.manual_seed(0)
    theirs = info.module_cls(*arguments, **keywords)
    backlight.manual_seed(0)
    ours = getattr(backlight.nn, name)(*translate(arguments), **translate(keywords))
    assert repr(ours) == repr(theirs), f"repr {ours!r} in place of {theirs!r}"
    assert list(ours.state_dict()) == list(theirs.state_dict()), "state_dict keys"
    lazy = any(torch.nn.parameter.is_lazy(p) for p in [*theirs.parameters(), *theirs.buffers()])
    if not lazy:
        check_close(tensors_of(ours.state_dict()), tensors_of(theirs.state_dict()), "initial state", TOLERANCE[torch.float32])
    theirs.to(dtype).train(training)
    ours.to(translate(dtype)).train(training)
    forward = translate([sample.forward_input.args, sample.forward_input.kwargs], leaf)
    mine = translate(forward)
    if lazy:  # the first call makes the parameters
        torch.manual_seed(2)
        theirs(*forward[0], **forward[1])
        backlight.manual_seed(2)
        ours(*mine[0], **mine[1])
        assert repr(ours) == repr(theirs), f"repr {ours!r} in place of {theirs!r}"
    check_close(tensors_of(ours.state_dict()), tensors_of(theirs.state_dict()), "state", TOLERANCE[torch.float32])
    for own, other in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        own.copy_(translated_tensor(other))  # a matrix inverse at initialisation may differ in the last digits
    expected, expected_gradients = run(torch, theirs, *forward)
    got, gradients = run(backlight, ours, *mine)
    check_close(got, expected, "output", TOLERANCE[dtype])
    assert gradients.keys() == expected_gradients.keys(), f"gradients of {[*gradients]} in place of {[*expected_gradients]}"
    for key, g in expected_gradients.items():
        assert (g is None) == (gradients[key] is None), f"gradient of {key}"
        if g is not None:
            check_close([gradients[key]], [g], f"gradient of {key}", TOLERANCE[dtype])
    check_close(tensors_of(ours.state_dict()), tensors_of(theirs.state_dict()), "state afterwards", TOLERANCE[dtype])


def samples(info, dtype, training):
    if info.train_and_eval_differ or training:
        torch.manual_seed(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)


def sweep(info, dtypes=(torch.float32, torch.float64)):
    """(how many samples, {what went wrong: how often})"""
    total, failures = 0, Counter()
    for dtype in dtypes:
        if dtype not in info.dtypes:
            continue
        for training in (True, False):
            for sample in samples(info, dtype, training):
                total += 1
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        check(info, sample, dtype, training)
                except Exception as error:
                    text = " ".join(str(error).split())[:200]
                    failures[f"{type(error).__name__}: {text}"] += 1
    return total, failures


INFOS = {info.name: info for info in module_db}

if __name__ == "__main__":
    pattern = sys.argv[1] if sys.argv[1:] else ""
    count = failed = 0
    for name, info in INFOS.items():
        if re.search(pattern, name):
            total, failures = sweep(info)
            count, failed = count + total, failed + sum(failures.values())
            if failures or pattern:
                print(f"{name}: {total - sum(failures.values())} of {total}")
                for text, n in failures.items():
                    print(f"    {n} x {text}")
    print(f"{count - failed} of {count} samples of {len(INFOS)} modules agree ({100 * (count - failed) / max(count, 1):.2f} %)")
