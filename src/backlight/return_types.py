"""`torch.return_types`: the named tuples that operations with several results return, printed as PyTorch prints them."""

from __future__ import annotations

from operator import itemgetter


def return_type(name: str, *fields: str) -> type:
    """A tuple type with these fields, kept in this module under its name."""

    def new(cls, *values):
        return tuple.__new__(cls, values[0] if len(values) == 1 else values)

    def text(self):
        return f"torch.return_types.{name}(\n" + ",\n".join(f"{f}={v!r}" for f, v in zip(fields, self)) + ")"

    members = {
        "__slots__": (), "__new__": new, "__repr__": text, "__module__": "torch.return_types", "n_fields": len(fields),
        "n_sequence_fields": len(fields), "n_unnamed_fields": 0, "__match_args__": fields, "__reduce__": lambda self: (_make, (name, tuple(self))),
        **{field: property(itemgetter(i)) for i, field in enumerate(fields)},
    }  # fmt: skip
    globals()[name] = made = type(name, (tuple,), members)
    return made


def _make(name, values):
    return globals()[name](values)
