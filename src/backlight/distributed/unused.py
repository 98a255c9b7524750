"""Why parameters of a DistributedDataParallel model got no gradient, in the words of the inspector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ..state import state
from .reducer import UNFINISHED

if TYPE_CHECKING:
    from ..nn.module import Module
    from .reducer import Reducer


def raise_unfinished(module: Module, reducer: Reducer, inputs: tuple, kwargs: dict) -> NoReturn:
    """Raises the error about a backward pass in which gradients were missing: which ones, and why."""
    missing = reducer.unfinished()
    rank = reducer.group.ranks[reducer.group.rank()]
    reducer.expecting = reducer.running = False
    text = f"{UNFINISHED}\nParameter indices which did not receive grad for rank {rank}: {' '.join(map(str, missing))}"
    if not missing:
        raise RuntimeError(
            f"{UNFINISHED}\nAll parameters received their gradient on rank {rank}, but the backward pass ended with an error, or its "
            "gradients were not averaged."
        )
    causes = _causes(module, {reducer.names[i]: reducer.parameters[i] for i in missing}, reducer, inputs, kwargs)
    grouped: dict[str, list[str]] = {}
    for name, cause in causes.items():
        grouped.setdefault(cause, []).append(name)
    lines = [f"  {', '.join(names)}: {cause}" for cause, names in grouped.items()]
    raise RuntimeError("\n".join([text, *lines]))


def _causes(module: Module, parameters: dict[str, Any], reducer: Reducer, inputs: tuple, kwargs: dict) -> dict[str, str]:
    """{name: why it has no gradient}. Runs this forward once more, recorded, and leaves the model as it was."""
    causes = {
        name: "requires_grad was switched off after the model was wrapped"
        for name, p in parameters.items()
        if not p.requires_grad
    }
    wanted = {name: p for name, p in parameters.items() if p.requires_grad}
    if not wanted:
        return causes
    try:
        return causes | (_known(wanted) if state.recorder is not None else _found_out(module, wanted, reducer, inputs, kwargs))
    except Exception as error:  # what explains an error must not hide it
        unknown = f"no gradient; forward and backward run for the cause raised {type(error).__name__}: {error}"
        return causes | dict.fromkeys(wanted, unknown)


def _known(parameters: dict[str, Any]) -> dict[str, str]:
    """From the recording that is on."""
    from ..inspect import explain

    causes = {}
    for name, parameter in parameters.items():
        findings = explain(parameter)
        causes[name] = _cause(findings[0].title) if findings else "no gradient"
    return causes


def _found_out(module: Module, parameters: dict[str, Any], reducer: Reducer, inputs: tuple, kwargs: dict) -> dict[str, str]:
    from .. import get_rng_state, inspect, set_rng_state
    from ..autograd import backward
    from ..inspect.explain.flow import Flow
    from ..inspect.explain.missing import why_none
    from ..nn.parallel import _tensors_in

    leaves, buffers, random = reducer.leaves, [(b, b.array.copy()) for b in module.buffers()], get_rng_state()
    gradients, broken = [leaf.grad for leaf in leaves], reducer.group.broken
    reducer.group.broken = "this rank explains why gradients are missing"  # nobody would answer a collective in forward now
    try:
        for leaf in leaves:
            leaf.grad = None
        with inspect.start() as recorder:
            recorder.watch_module(module)
            outputs = [x for x in _tensors_in(module(*inputs, **kwargs)) if x.requires_grad]
            if not outputs:
                return dict.fromkeys(parameters, "no output of forward requires grad")
            backward([x.sum() for x in outputs])
        called = {call.name for call in recorder.record.modules}
        flow, one, causes = Flow(recorder.record), recorder.record.passes[-1], {}
        for name, parameter in parameters.items():
            owner = name.rpartition(".")[0]
            line = recorder.known_tensor(parameter)
            if parameter.grad is not None:
                causes[name] = "it flows into what forward returns, but the loss didn't use that part"
            elif owner and owner not in called:
                kind = type(module.get_submodule(owner)).__name__
                causes[name] = f"no gradient, because its module {owner} ({kind}) was not called in forward"
            elif line is None:
                causes[name] = "no gradient, because nothing used it before the backward pass"
            else:
                causes[name] = _cause(why_none(flow, line, one).title)
        return causes
    finally:
        reducer.group.broken = broken
        set_rng_state(random)
        for leaf, gradient in zip(leaves, gradients):
            leaf.grad = gradient
        for buffer, array in buffers:
            buffer.array[...] = array


def _cause(title: str) -> str:
    """What a finding says of "{names}: ..."."""
    return title.rpartition("{names}: ")[2].replace("{is}", "is")
