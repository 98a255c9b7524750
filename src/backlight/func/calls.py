"""Modules in functional programs: functional_call, stack_module_state."""

from __future__ import annotations

from ..tensor import Tensor


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Calls the module with other parameters and buffers than its own; the module stays as it is.

    parameter_and_buffer_dicts: name -> tensor, or several such dicts. args, kwargs: what the module is called with (a single
    value counts as one argument). tie_weights: a replaced parameter is replaced under all its names. strict: RuntimeError
    for names that are missing or unknown.

    >>> import backlight as torch
    >>> layer = torch.nn.Linear(2, 1)
    >>> zeros = {"weight": torch.zeros(1, 2), "bias": torch.zeros(1)}
    >>> torch.func.functional_call(layer, zeros, torch.ones(2))
    tensor([0.])
    """
    if isinstance(parameter_and_buffer_dicts, dict):
        values = dict(parameter_and_buffer_dicts)
    elif isinstance(parameter_and_buffer_dicts, (list, tuple)):
        if not all(isinstance(d, dict) for d in parameter_and_buffer_dicts):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        names = [name for d in parameter_and_buffer_dicts for name in d]
        repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        values = {name: value for d in parameter_and_buffer_dicts for name, value in d.items()}
    else:
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(parameter_and_buffer_dicts)}"
        )
    for value in values.values():
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"{value} is not an instance of torch.Tensor")
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    places = _places(module)
    tied = _tied_names(places) if tie_weights else {}
    if strict:
        _check_names(module, values, places, tied)
    full = dict(values)
    for name, value in values.items():
        for other in tied.get(name, ()):
            if other in values and values[other] is not value:
                raise ValueError(f"functional_call got multiple values for keys {sorted(tied[name] | {name})}, which are tied. Consider "
                                 "using tie_weights=False")  # fmt: skip
            full.setdefault(other, value)
    targets = [(*(places[name][:2] if name in places else _attribute(module, name)), value) for name, value in full.items()]
    before = [store.get(key, _MISSING) for store, key, _ in targets]
    try:
        for store, key, value in targets:
            store[key] = value
        return module(*args, **(kwargs or {}))
    finally:
        for (store, key, _), old in zip(targets, before):
            store[key] = old
            if old is _MISSING:
                del store[key]


_MISSING = object()


def _places(module) -> dict:
    """name -> (the attributes of a module, the key in them, the tensor), every name of a shared parameter or buffer included."""
    places = {}
    for prefix, child in module.named_modules(remove_duplicate=False):
        store = vars(child)
        for names in (child._parameter_names, child._buffer_names):
            for key in names:
                places[f"{prefix}.{key}" if prefix else key] = (store, key, store[key])
    return places


def _attribute(module, name):
    """(dict, key) of a name that is no parameter or buffer: an attribute of the submodule that the path leads to."""
    *path, key = name.split(".")
    for part in path:
        if not hasattr(module, part):
            raise AttributeError(f"{type(module).__name__} has no attribute `{part}`")
        module = getattr(module, part)
    if hasattr(module, key) and not isinstance(getattr(module, key), Tensor):
        raise TypeError(f"attribute `{key}`: {getattr(module, key)} is not an instance of torch.Tensor")
    return vars(module), key


def _tied_names(places) -> dict:
    """name -> the other names of the same tensor."""
    by_tensor: dict = {}
    for name, (_, _, value) in places.items():
        if value is not None:
            by_tensor.setdefault(id(value), set()).add(name)
    return {name: names - {name} for names in by_tensor.values() if len(names) > 1 for name in names}


def _check_names(module, values, places, tied) -> None:
    """RuntimeError for names that are missing or unknown."""
    given = set(values).union(*[tied.get(name, ()) for name in values])
    unknown, missing = sorted(set(values) - places.keys()), sorted(places.keys() - given)
    if unknown or missing:
        lines = [
            f"{what} key(s): {', '.join(map(repr, names))}."
            for what, names in (("Unexpected", unknown), ("Missing", missing))
            if names
        ]
        raise RuntimeError(f"Error(s) in reparametrizing for {type(module).__name__}:\n\t" + "\n\t".join(lines))


def stack_module_state(models):
    """(parameters, buffers) of several modules of one architecture, each stacked along a new first dimension, by name.

    With vmap over them and functional_call, the modules run as one ensemble. The stacked parameters are new leaves.

    >>> import backlight as torch
    >>> params, buffers = torch.func.stack_module_state([torch.nn.Linear(2, 3) for _ in range(4)])
    >>> params["weight"].shape
    torch.Size([4, 3, 2])
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    params = {
        name: _stacked(name, [dict(m.named_parameters())[name] for m in models]) for name, _ in models[0].named_parameters()
    }
    buffers = {name: _stacked(name, [dict(m.named_buffers())[name] for m in models]) for name, _ in models[0].named_buffers()}
    return params, buffers


def replace_all_batch_norm_modules_(root):
    """Takes the running statistics from all batch norm layers of a module, in place, so that it runs under vmap. Returns it."""
    from ..nn.norm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
    return root


def _stacked(name, tensors):
    from ..ops.join import stack

    wanted = [x.requires_grad for x in tensors]
    if any(wanted) and not all(wanted):
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    if all(wanted) and all(x.is_leaf for x in tensors):
        return stack([x.detach() for x in tensors]).requires_grad_()  # pyright: ignore[reportAttributeAccessIssue]
    return stack(tensors)
