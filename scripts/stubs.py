"""Writes the type stubs (.pyi) of what exists at run time only: operations and methods bound from declarations.

`python scripts/stubs.py` writes them, `--check` only says whether they are up to date. Type checkers and editors read stubs
in place of the modules; Python doesn't.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import FunctionType, MemberDescriptorType, ModuleType

import backlight
from backlight import dtypes
from backlight.op import REGISTRY, build

tensor = importlib.import_module("backlight.tensor")  # `backlight.tensor` is the function
SOURCE = Path(backlight.__file__).parent
HEADER = '"""{}\n\nWritten by scripts/stubs.py; don\'t edit."""\n\n'

# What functions without an annotation return, where it isn't one tensor. Any: it depends on the arguments.
RETURNS = {
    **dict.fromkeys(
        "frexp histogram native_dropout aminmax cummax cummin kthvalue mode sort std_mean topk var_mean _amp".split(),
        "tuple[Tensor, Tensor]",
    ),
    **dict.fromkeys(
        "hsplit vsplit dsplit gradient unravel_index unsafe_chunk unsafe_split unsafe_split_with_sizes split_copy "
        "split_with_sizes_copy unbind_copy broadcast_tensors chunk split split_with_sizes tensor_split unbind meshgrid".split(),
        "tuple[Tensor, ...]",
    ),
    **dict.fromkeys(
        "histogramdd vmap multi_head_attention_forward fractional_max_pool3d max_pool1d_with_indices max min median nanmedian unique unique_consecutive nonzero where atleast_1d atleast_2d atleast_3d item tolist "
        "numpy size stride set_ type _format_tensor cartesian_prod __array__ __array_wrap__ __dlpack__ __dlpack_device__ "
        "__reduce_ex__ __iter__ __deepcopy__ __copy__ histc histogram max_pool1d max_pool2d max_pool3d "
        "fractional_max_pool2d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d backward register_hook "
        "register_post_accumulate_grad_hook from_dlpack data_ptr storage_offset element_size get_device qr svd eigh slogdet "
        "lu_factor".split(),
        "Any",
    ),
    **dict.fromkeys(
        "allclose equal is_complex is_conj is_floating_point is_nonzero is_signed is_same_size __bool__".split(), "bool"
    ),
    **dict.fromkeys("is_contiguous is_neg is_pinned is_shared can_cast".split(), "bool"),
    **dict.fromkeys("retain_grad __init__ __setitem__".split(), "None"),
    **dict.fromkeys("__repr__ __format__".split(), "str"),
    **dict.fromkeys("ndimension nelement __index__ __int__".split(), "int"),
    "__float__": "float",
    "__complex__": "complex",
    "broadcast_shapes": "dtypes.Size",
    "result_type": "dtypes.dtype",
    "promote_types": "dtypes.dtype",
}
# Likewise for attributes of a tensor.
ATTRIBUTES = {
    "grad": "Tensor | None",
    "data": "Tensor",
    "grad_fn": "Any",
    "array": "np.ndarray",
    "names": "Any",
    "_base": "Tensor | None",
}
BUILTINS = re.compile(r"(?<![\w.])(bool|bytes|complex|dict|float|frozenset|int|list|object|set|str|tuple|type)\b(?!\()")


def qualified(annotation: str) -> str:
    """The annotation with builtins spelled out: Tensor has methods named float, int and type, the package a bool."""
    return BUILTINS.sub(r"builtins.\1", annotation.replace("_builtin_", ""))


def returns(name: str, function) -> str:
    annotation = inspect.signature(function).return_annotation
    if annotation is not inspect.Signature.empty:
        if isinstance(annotation, dtypes.dtype):  # in the package itself `bool` and `int` are dtypes
            return {"bool": "bool", "int32": "int"}[annotation.name]
        return annotation if isinstance(annotation, str) else "None" if annotation is None else annotation.__name__
    if name in RETURNS:
        return RETURNS[name]
    op = getattr(function, "op", None)
    if op is not None and op.outputs != 1:
        return "tuple[Tensor, ...]"
    return "Tensor"


def parameter(name: str, default) -> str:
    """A parameter with its default. A number may stand where a tuple or a tensor is welcome too, so those say `Any`."""
    if default is None or type(default) in (bool, str):
        return f"{name}={default!r}"
    return (
        f"{name}: Any = {default!r}" if type(default) is int or type(default) is float and default == default else f"{name}=..."
    )


def signature(function, method=False) -> str:
    """The parameters as text; annotations are left to the source, since few functions have them."""
    words, keyword_only = [], False
    for i, p in enumerate(inspect.signature(function).parameters.values()):
        if p.kind is p.VAR_POSITIONAL:
            words.append(f"*{p.name}")
            keyword_only = True
        elif p.kind is p.VAR_KEYWORD:
            words.append(f"**{p.name}")
        else:
            if p.kind is p.KEYWORD_ONLY and not keyword_only:
                words.append("*")
                keyword_only = True
            name = "self" if method and i == 0 else p.name
            words.append(name if p.default is p.empty else parameter(name, p.default))
    if getattr(function, "takes_out", False) and "out=None" not in words:
        words += ["out=None"] if keyword_only else ["*", "out=None"]
    if method and (not words or words[0] in ("*args", "*sizes", "*dims", "*shape")):
        words.insert(0, "self")
    return ", ".join(words)


def definition(name: str, function, method=False) -> str:
    primitive = getattr(function, "__wrapped__", function)
    if hasattr(primitive, "op"):
        build(primitive.op)  # before its first call an operation is a stub without a signature
    return f"def {name}({signature(function, method)}) -> {qualified(returns(name, function))}: ..."


def tensor_stub() -> str:
    lines = []
    for name, value in vars(tensor.Tensor).items():
        if name in ("__module__", "__doc__", "__slots__", "__dict__", "__weakref__", "__new__", "__hash__", "__annotations__"):
            continue
        if isinstance(value, property):
            annotation = ATTRIBUTES.get(name) or (returns(name, value.fget) if value.fget else "Any")
            if value.fset:
                lines.append(f"{name}: {qualified(annotation)}")
            else:
                lines.append(f"@property\ndef {name}(self) -> {qualified(annotation)}: ...")
        elif isinstance(value, FunctionType):
            lines.append(definition(name, value, method=True))
        elif isinstance(value, classmethod):
            lines.append(f"@classmethod\ndef {name}(cls, {signature(value.__func__).partition(', ')[2]}) -> Tensor: ...")
        elif isinstance(value, staticmethod):
            lines.append(f"@staticmethod\n{definition(name, value.__func__)}")
        elif isinstance(value, MemberDescriptorType):
            lines.append(f"{name}: {ATTRIBUTES.get(name, 'Any')}")
        else:
            lines.append(f"{name}: {qualified(type(value).__name__)}")
    body = "\n".join("    " + line for line in "\n".join(lines).splitlines())
    rest = [
        definition(name, value)
        for name, value in vars(tensor).items()
        if isinstance(value, FunctionType) and value.__module__ == tensor.__name__
    ]
    return (
        HEADER.format("`Tensor` with everything that the files in ops/ and nn/ bind to it.")
        + "import builtins\nfrom typing import Any\n\nimport numpy as np\n\nfrom . import dtypes\nfrom .dtypes import Size\n\n"
        + f"class Tensor:\n    def __new__(cls, *data, device=None, dtype=None, requires_grad=False) -> Tensor: ...\n{body}\n\n"
        + "class Parameter(Tensor):\n    def __new__(cls, data=None, requires_grad=True) -> Parameter: ...\n\n"
        + "\n".join(rest)
        + "\n\nclass InferenceTensor(Tensor): ...\n\nPLAIN: frozenset[type]\n"
    )


def package_stub() -> str:
    imports, definitions = [], []
    for name in sorted(n for n in dir(backlight) if not n.startswith("_")):
        value = getattr(backlight, name)
        if isinstance(value, ModuleType):
            if value.__name__ == f"backlight.{name}":
                imports.append(f"from . import {name} as {name}")
        elif (name in REGISTRY and REGISTRY[name] is value) or (
            isinstance(value, FunctionType) and value.__module__ == "backlight"
        ):
            definitions.append(definition(name, value))
        elif isinstance(value, (type, FunctionType)):
            imports.append(f"from {value.__module__.removeprefix('backlight')} import {value.__name__} as {name}")
        else:
            kind = type(value)
            known = kind in (bool, int, float, str) or kind is dtypes.dtype
            definitions.append(
                f"{name}: {kind.__name__ if kind is dtypes.dtype else qualified(kind.__name__) if known else 'Any'}"
            )
    return (
        HEADER.format("Backlight's public functions, as operations declare them.")
        + "import builtins\nfrom typing import Any\n\n"
        + "\n".join(imports)
        + "\n\n"
        + "\n".join(definitions)
        + "\n\n__version__: builtins.str\n"
    )


def module_stub(module: str) -> str:
    dots = "." * (module.count(".") + 1)
    lines = [
        definition(name.rpartition(".")[2], function)
        for name, function in REGISTRY.items()
        if name.rpartition(".")[0] == module
    ]
    return (
        HEADER.format(f"The functions of `torch.{module}`, as operations declare them.")
        + f"import builtins\nfrom typing import Any\n\nfrom {dots} import dtypes\nfrom {dots}tensor import Tensor\n\n"
        + "\n".join(sorted(lines))
        + "\n"
    )


def stubs() -> dict[Path, str]:
    """The text of every stub file."""
    package = package_stub()  # first, since it imports what is imported when asked for
    return {
        SOURCE / "tensor.pyi": tensor_stub(),
        SOURCE / "__init__.pyi": package,
        **{
            SOURCE / f"{name.replace('.', '/')}.pyi": module_stub(name)
            for name in ("nn.functional", "linalg", "special", "fft", "signal.windows")
        },
    }


def outdated() -> dict[Path, str]:
    """The stub files whose text isn't what the declarations make now, and what it should be."""
    return {path: text for path, text in stubs().items() if not path.exists() or path.read_text(encoding="utf-8") != text}


if __name__ == "__main__":
    old = outdated()
    check = "--check" in sys.argv
    print(*(f"{'out of date' if check else 'written'}: {path}" for path in old), sep="\n", end="\n" if old else "")
    if check:
        sys.exit(1 if old else 0)
    for path, text in old.items():
        path.write_text(text, encoding="utf-8")
