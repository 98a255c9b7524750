"""What keeps a graph alive: from a tensor's memory to the Python variable that holds it. Works on living objects of both engines."""

from __future__ import annotations

import gc
import os
import sys
import types
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..recorder import locals_of
from ..schema import Site
from .finding import Finding, listed, size_of

if TYPE_CHECKING:
    from ..recorder import Recorder

STEPS = 12  # how long a chain of holders is followed


def graph_of(node: Any) -> list[Any]:
    """The nodes behind a node, itself included, leaves not."""
    todo, seen = [node], {node}
    for one in todo:  # grows while it is walked
        for parent, _number in one.next_functions:
            if parent is not None and parent not in seen and not hasattr(parent, "variable"):
                seen.add(parent)
                todo.append(parent)
    return todo


def saved_bytes(node: Any) -> dict[int, int]:
    """The bytes of the tensors that a node has saved, by the address of their memory; empty if they were freed."""
    result: dict[int, int] = {}
    for name in dir(type(node)):
        if not name.startswith("_saved_"):
            continue
        try:
            value = getattr(node, name)
        except RuntimeError:  # freed, or written since
            continue
        for one in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(one, "data_ptr") and hasattr(one, "nbytes"):
                result[one.data_ptr()] = one.nbytes
    if hasattr(node, "saved_tensors") and not result:
        with suppress(RuntimeError, AttributeError):
            result.update((x.data_ptr(), x.nbytes) for x in node.saved_tensors if x is not None)
    return result


def holders(target: Any, ignored: tuple = ()) -> list[str]:
    """The chain from `target` to what holds it: "`.grad_fn` of a tensor", "variable tot of train()". Empty if nothing is known."""
    skip = {id(x) for x in ignored} | {id(target)}
    chain: list[str] = []
    current = target
    for _ in range(STEPS):
        found = _holder(current, skip)
        if found is None:
            break
        text, following = found
        del found  # a tuple that refers to the next target, which gc.get_referrers would find
        chain.append(text)
        if following is None:
            break
        if getattr(target, "grad_fn", None) is following or any(x is target for x in gc.get_referrers(following)):
            chain.append("a reference cycle")
            break
        skip.add(id(following))
        current = following
    return chain


def _holder(target: Any, skip: set[int]) -> tuple[str, Any] | None:
    """One step of a chain: (what holds the target in words, the holder to go on from, None at a variable)."""
    variable = _variable(target)
    if variable is not None:
        return variable, None
    own_frames = {id(frame) for frame in _frames(sys._getframe())}
    for holder in gc.get_referrers(target):
        if id(holder) in skip or id(holder) in own_frames or isinstance(holder, types.FrameType) or _is_ours(holder):
            continue
        if isinstance(holder, dict):
            keys = [key for key, value in holder.items() if value is target]
            owner = next((x for x in gc.get_referrers(holder) if getattr(x, "__dict__", None) is holder), None)
            if owner is not None and keys:
                return f"attribute .{keys[0]} of a {type(owner).__name__}", owner
            if keys and isinstance(keys[0], (str, int)):
                return f"[{keys[0]!r}] of a dict", holder
            continue
        if isinstance(holder, types.CellType):
            function = next((f for c in gc.get_referrers(holder) if isinstance(c, tuple) for f in gc.get_referrers(c)
                             if isinstance(f, types.FunctionType)), None)  # fmt: skip
            if function is not None:
                return f"the closure of {function.__qualname__}() (line {function.__code__.co_firstlineno})", function
            continue
        if isinstance(holder, types.FunctionType):
            return f"the function {holder.__qualname__}", holder
        if isinstance(holder, (list, tuple, set)):
            if isinstance(holder, tuple) and not gc.is_tracked(holder):
                continue
            return f"a {type(holder).__name__} of {len(holder)}", holder
        return f"a {type(holder).__name__}", holder
    return None


def _is_ours(holder: Any) -> bool:
    return type(holder).__module__.startswith("backlight.inspect") or isinstance(holder, (types.GeneratorType, type(iter([]))))


def _frames(frame: types.FrameType | None) -> list[types.FrameType]:
    result = []
    while frame is not None:
        result.append(frame)
        frame = frame.f_back
    return result


def _variable(target: Any) -> str | None:
    """The variable of the program that refers to the target directly."""
    own = os.path.dirname(os.path.dirname(__file__))
    seen = set()
    for frame in _frames(sys._getframe()):
        if frame.f_code.co_filename.startswith(own):
            continue
        if frame.f_code.co_flags & 1:
            for name, value in locals_of(frame):
                if value is target:
                    return f"local variable {name} of {frame.f_code.co_name}()"
        if id(frame.f_globals) not in seen:
            seen.add(id(frame.f_globals))
            for name, value in list(frame.f_globals.items()):
                if value is target:
                    return f"global variable {name}"
    for name, value in list(vars(sys.modules["__main__"]).items()):
        if value is target:
            return f"global variable {name}"
    return None


def alive(recorder: Recorder) -> list[Finding]:
    """The graphs of the recorded program that still exist, each with what holds it: one finding per graph's newest node or tensor."""
    tensors = {}
    for tensor, line in recorder.alive():
        if line.role == "result" and tensor.grad_fn is not None:
            tensors[tensor.grad_fn] = tensor, line
    objects = gc.get_objects()
    nodes = [x for x in objects if recorder.is_node(x)]
    for cell in objects:  # the cycle collector doesn't list PyTorch's nodes, but the closures that hold them
        if type(cell) is types.CellType:
            try:
                content = cell.cell_contents
            except ValueError:  # empty
                continue
            if recorder.is_node(content):
                nodes.append(content)
    del objects
    nodes = [x for x in nodes if recorder.known_node(x) is not None]
    roots = [node for node in {**dict.fromkeys(nodes), **dict.fromkeys(tensors)} if not hasattr(node, "variable")]
    inner = {behind for node in roots for behind in graph_of(node)[1:]}
    found = []
    del nodes
    for node in roots:
        if node in inner:
            continue
        tensor, line = tensors.get(node, (None, None))
        label = line.label if line is not None else node.name()
        found.append(held_graph(tensor if tensor is not None else node, recorder, label, (*tensors.values(), roots)))
    return found


def gradient_cycle(tensor: Any, name: str) -> Finding | None:
    """A leaf that its own gradient keeps alive: `.grad` has a graph that leads back to the leaf."""
    grad = tensor.grad
    if grad is None or grad.grad_fn is None:
        return None
    for node in graph_of(grad.grad_fn):
        if any(parent is not None and getattr(parent, "variable", None) is tensor for parent, _ in node.next_functions):
            return Finding(
                "gradient-cycle",
                "warning",
                f"{name}.grad keeps {name} alive: its graph leads back to {name}",
                f"backward(create_graph=True) left a graph behind {name}.grad, and that graph refers to {name}, which owns .grad: a cycle that "
                "reference counting can't free.",
                f"set {name}.grad = None after use, or call autograd.grad(..., create_graph=True), which returns gradients instead",
                {},
                {"holders": [f"{name}.grad", "its grad_fn", name]},
                [name],
            )
    return None


def held_graph(target: Any, recorder: Recorder | None = None, name: str | None = None, ignored: tuple = ()) -> Finding:
    """How large the graph behind a tensor (or node) is, by which lines, whether its buffers were freed, and who holds it: none of
    `ignored`, which are the caller's own."""
    node = target.grad_fn if hasattr(target, "grad_fn") else target
    nodes = graph_of(node) if node is not None else []
    storages: dict[int, int] = {}
    by_line: Counter[str] = Counter()
    sites: dict[str, Site] = {}
    freed = 0
    for one in nodes:
        saved = saved_bytes(one)
        line = recorder.known_node(one) if recorder is not None else None
        fresh = {pointer: size for pointer, size in saved.items() if pointer not in storages}
        storages.update(fresh)
        if line is not None:
            freed += line.freed_by is not None
            if line.site is not None and fresh:
                by_line[str(line.site)] += sum(fresh.values())
                sites.setdefault(str(line.site), line.site)
    total = sum(storages.values())
    chain = holders(target, (*ignored, nodes))
    buffers_freed = bool(nodes) and not total and freed > 0
    known = recorder.known_tensor(target) if recorder is not None and target is not node else None
    label = name or (known.label if known is not None else "the tensor")
    lines = by_line.most_common(5)
    text = (
        f"{label} holds {len(nodes)} nodes with {size_of(total)} of saved tensors. Held by: {' <- '.join(chain) or 'nothing that could be found'}."
        + (f" Most of it was saved at {listed(f'{os.path.basename(k)} ({size_of(v)})' for k, v in lines)}." if lines else "")
        + (" The buffers were freed by a backward pass; the nodes themselves stay." if buffers_freed else "")
    )
    return Finding(
        "graph-alive",
        "note",
        f"{label} keeps a graph of {len(nodes)} nodes and {size_of(total)} alive",
        text,
        f"use {label}.detach() or .item() where only the value is needed",
        {f"saved {i + 1}": sites[key] for i, (key, _) in enumerate(lines)},
        {
            "nodes": len(nodes),
            "bytes": total,
            "by_line": dict(by_line),
            "holders": chain,
            "buffers_freed": buffers_freed,
            "cycle": bool(chain) and chain[-1].endswith("cycle"),
            "root": node.name() if node is not None else "",
        },
        [label],
    )
