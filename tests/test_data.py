"""Datasets, samplers, collating and loading in one process, against PyTorch: the same batches, order, random numbers and errors."""

import collections
import importlib
import pickle

import numpy as np
import pytest
import torch
from both_packages import Programs, assert_same_log, attempt

import backlight

program = Programs()


def data_of(lib):
    return importlib.import_module(f"{lib.__name__}.utils.data")


def squares_of(lib):
    class Squares(data_of(lib).Dataset):
        def __init__(self, count=10):
            self.count = count

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            if not 0 <= index < self.count:
                raise IndexError(index)
            return index * index

    return Squares


def counting_of(lib):
    class Counting(data_of(lib).IterableDataset):
        def __init__(self, count, told=None):
            self.count, self.told = count, told

        def __iter__(self):
            return iter(range(self.count))

        def __len__(self):
            if self.told is None:
                raise TypeError("no length")
            return self.told

    return Counting


@program
def datasets(torch, log):
    data, Squares, Counting = data_of(torch), squares_of(torch), counting_of(torch)
    tensors = torch.arange(12.0).view(6, 2), torch.arange(6)
    dataset = data.TensorDataset(*tensors)
    log += [len(dataset), dataset[2], dataset[1:4], dataset[-1], dataset[[0, 2]]]
    attempt(log, data.TensorDataset, torch.zeros(2), torch.zeros(3))
    attempt(log, lambda: dataset[6])
    attempt(log, data.Dataset().__getitem__, 0)
    for stacked in (data.StackDataset(Squares(6), dataset), data.StackDataset(a=Squares(6), b=dataset)):
        log += [len(stacked), stacked[3], stacked.__getitems__([1, 2])]
    subset = data.Subset(Squares(), [3, 1, 7])
    nested = data.StackDataset(subset, data.Subset(Squares(), [1, 2, 3]))
    log += [nested.__getitems__([0, 2]), len(subset), subset[1], subset.__getitems__([2, 0])]
    attempt(log, lambda: subset[9])
    log.append(data.Subset(data.Subset(dataset, [5, 4, 3]), [0, 2])[1])
    log.append(data.Subset(dataset, [5, 4, 3])[[0, 1]])
    attempt(log, data.StackDataset)
    attempt(log, data.StackDataset, Squares(2), Squares(3))
    attempt(log, data.StackDataset, Squares(2), a=Squares(2))
    attempt(log, lambda: data.StackDataset(a=Squares(2), b=Squares(3)))

    class Short(Squares):
        def __getitems__(self, indices):
            return [0]

    attempt(log, data.StackDataset(Short(5)).__getitems__, [1, 2])
    attempt(log, data.StackDataset(a=Short(5)).__getitems__, [1, 2])
    both = Squares(3) + Squares(4)
    log += [len(both), [both[i] for i in range(7)], both[-1], both.cumulative_sizes, type(both).__name__]
    log.append(both.cummulative_sizes)
    attempt(log, lambda: both[7])
    attempt(log, lambda: both[-8])
    attempt(log, data.ConcatDataset, [])
    attempt(log, data.ConcatDataset, [Counting(3)])
    log.append(data.ConcatDataset.cumsum([[1, 2], [3]]))
    chain = Counting(3, 3) + Counting(2, 2)
    log += [list(chain), len(chain), type(chain).__name__]
    attempt(log, len, data.ChainDataset([Squares()]))
    attempt(log, list, data.ChainDataset([Squares()]))

    class Wrong(data.Subset):
        def __getitem__(self, index):
            return 0

    attempt(log, Wrong, Squares(), [0])
    log += [data.Dataset[int] is not None, data.DataLoader[int] is not None, data.Sampler[int] is not None]


@program
def splits(torch, log):
    data = data_of(torch)
    torch.manual_seed(3)
    for lengths in ([3, 7], [0.3, 0.7], [0.33, 0.33, 0.34], [0.5, 0.5, 0.0], [1.0], [2, 0, 8], [0.9, 0.05, 0.05]):
        log.append([part.indices for part in data.random_split(range(10), lengths)])
        log.append([list(part) for part in data.random_split(range(10), lengths, torch.Generator().manual_seed(5))])
    for lengths in ([3, 8], [1.5, -0.5], [], [0.5, 0.6]):
        attempt(log, data.random_split, range(10), lengths)
    log.append(torch.rand(3))


@program
def samplers(torch, log):
    data = data_of(torch)
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(7)
    made = [
        data.SequentialSampler(range(5)),
        data.RandomSampler(range(5)),
        data.RandomSampler(range(5), num_samples=12),
        data.RandomSampler(range(5), num_samples=3),
        data.RandomSampler(range(5), replacement=True),
        data.RandomSampler(range(5), replacement=True, num_samples=70),
        data.RandomSampler(range(5), generator=generator),
        data.RandomSampler(range(5), True, 40, generator),
        data.SubsetRandomSampler([3, 9, 4]),
        data.SubsetRandomSampler("abc", generator),
        data.WeightedRandomSampler([0.1, 0.9, 3.0], 10),
        data.WeightedRandomSampler([0.1, 0.9, 3.0], 2, replacement=False),
        data.WeightedRandomSampler(torch.tensor([1.0, 2.0]), 5, generator=generator),
        data.BatchSampler(data.SequentialSampler(range(7)), 3, False),
        data.BatchSampler(data.SequentialSampler(range(7)), 3, True),
        data.BatchSampler(data.RandomSampler(range(7)), 2, False),
        data.BatchSampler("abcdefgh", 4, True),
    ]
    for sampler in made:
        log += [len(sampler), list(sampler), list(sampler), type(sampler).__name__]
    log += [torch.rand(3), torch.rand(3, generator=generator), made[1].num_samples, made[10].weights]
    for call in (
        lambda: data.RandomSampler(range(5), replacement=1),
        lambda: data.RandomSampler(range(5), num_samples=0),
        lambda: data.RandomSampler(range(0)),
        lambda: data.RandomSampler(range(5), num_samples=2.5),
        lambda: data.WeightedRandomSampler([1.0], 0),
        lambda: data.WeightedRandomSampler([1.0], True),
        lambda: data.WeightedRandomSampler([1.0], 2, replacement=None),
        lambda: data.WeightedRandomSampler([[1.0]], 2),
        lambda: data.BatchSampler([1], 0, False),
        lambda: data.BatchSampler([1], True, False),
        lambda: data.BatchSampler([1], 2.0, False),
        lambda: data.BatchSampler([1], 2, 1),
        lambda: list(data.Sampler()),
    ):
        attempt(log, call)


@program
def distributed(torch, log):
    data = data_of(torch)
    torch.manual_seed(0)
    for size in (1, 2, 10, 11, 12):
        for replicas in (1, 2, 4):
            for drop_last in (False, True):
                for shuffle in (False, True):
                    for rank in range(replicas):
                        sampler = data.DistributedSampler(range(size), replicas, rank, shuffle, seed=5, drop_last=drop_last)
                        sampler.set_epoch(2)
                        log.append((len(sampler), list(sampler)))
    attempt(log, data.DistributedSampler, range(5), 2, 2)
    attempt(log, data.DistributedSampler, range(5), 2, -1)
    log.append(torch.rand(2))


Point = collections.namedtuple("Point", "x y")


class Tagged(dict):
    """A dict with an attribute, which collating keeps."""

    tag = None


class Frozen(collections.abc.Mapping):
    def __init__(self, values):
        self.values_ = dict(values)

    def __getitem__(self, key):
        return self.values_[key]

    def __iter__(self):
        return iter(self.values_)

    def __len__(self):
        return len(self.values_)


class Row(list):
    """A list with an attribute."""

    tag = None


def tagged(kind, values):
    result = kind(values)
    result.tag = "kept"
    return result


def structure(value):
    """What `plain` in both_packages would lose: the types of containers and their attributes."""
    if isinstance(value, (torch.Tensor, backlight.Tensor)):
        return value
    if isinstance(value, collections.abc.Mapping):
        return type(value).__name__, getattr(value, "tag", None), {key: structure(value[key]) for key in value}
    if isinstance(value, np.ndarray):
        return "array", value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value).__name__, getattr(value, "tag", None), [structure(entry) for entry in value]
    return type(value).__name__, value if isinstance(value, (int, float, str, bool)) else repr(value)


def samples_of(lib):
    t = lib.tensor
    return [
        [t([1.0, 2.0]), t([3.0, 4.0])],
        [t(1), t(2)],
        [t([True]), t([False])],
        [t([1.0], dtype=lib.float64)] * 3,
        [t(1 + 2j)] * 2,
        [lib.zeros(0), lib.zeros(0)],
        [1, 2],
        [True, False],
        [1.5, 2.5],
        [1, 2.5],
        ["a", "b"],
        [b"a", b"b"],
        [np.float32(1), np.float32(2)],
        [np.float64(1), np.float64(2)],
        [np.int16(1), np.int16(2)],
        [np.bool_(True), np.bool_(False)],
        [np.arange(3), np.arange(3)],
        [np.ones((2, 2), "float32")] * 2,
        [np.array(3.0), np.array(4.0)],
        [(1, "a", t([1.0])), (2, "b", t([2.0]))],
        [[1, 2], [3, 4]],
        [{"a": 1, "b": t([1.0])}, {"a": 2, "b": t([2.0])}],
        [Point(1, 2.0), Point(3, 4.0)],
        [tagged(Tagged, {"a": 1}), tagged(Tagged, {"a": 2})],
        [Frozen({"a": 1}), Frozen({"a": 2})],
        [tagged(Row, [1, 2]), tagged(Row, [3, 4])],
        [collections.OrderedDict(a=1, b=[1, 2]), collections.OrderedDict(a=3, b=[4, 5])],
        [range(3), range(3)],
        [collections.deque([1, 2]), collections.deque([3, 4])],
        [{"x": [(1, {"y": "z"})]}] * 2,
        [()] * 2,
        [[]] * 2,
        [{}] * 2,
        [t([1.0]), t([1.0, 2.0])],
        [t([1.0]), 3],
        [object(), object()],
        [None, None],
        [{1, 2}, {3}],
        [[1, 2], [3]],
        [{"a": 1}, {"b": 2}],
        [np.array(["a"]), np.array(["b"])],
        [np.array([None]), np.array([None])],
        [lib.nn.Parameter(t([1.0])), lib.nn.Parameter(t([2.0]))],
        [t([1.0], requires_grad=True) * 2] * 2,
        [],
    ]


@program
def collating(torch, log):
    data = data_of(torch)
    for batch in samples_of(torch):
        for samples in (batch, tuple(batch)):
            try:
                log.append(structure(data.default_collate(samples)))
            except Exception as error:
                log.append(error)


@program
def converting(torch, log):
    data = data_of(torch)
    for batch in samples_of(torch):
        for sample in batch[:1]:
            try:
                log.append(structure(data.default_convert(sample)))
            except Exception as error:
                log.append(error)
    log.append(structure(data.default_convert([np.arange(2), (np.float32(1), "a", {"b": np.ones(1)}), Point(np.int64(1), 2)])))


@program
def collating_ones_own_type(torch, log):
    collate = importlib.import_module(f"{torch.__name__}.utils.data._utils.collate")

    class Mine:
        pass

    def function(batch, *, collate_fn_map=None):
        return len(batch), sorted(map(str, collate_fn_map)) == sorted(map(str, extended))

    extended = {**collate.default_collate_fn_map, Mine: function}
    log.append(collate.collate([(Mine(), 1), (Mine(), 2)], collate_fn_map=extended))
    attempt(log, collate.collate, [1, 2])
    log.append(collate.collate([[1], [2]], collate_fn_map={int: lambda batch, collate_fn_map: sum(batch)}))
    log.append(collate.default_collate_err_msg_format.format("x"))
    log.append(collate.np_str_obj_array_pattern.pattern)


@program
def loading(torch, log):
    data, Squares = data_of(torch), squares_of(torch)
    torch.manual_seed(0)
    tensors = data.TensorDataset(torch.arange(20.0).view(10, 2), torch.arange(10))
    generator = torch.Generator().manual_seed(9)
    for dataset in (tensors, Squares(), list(range(10)), data.Subset(tensors, [7, 1, 3, 5]), "abcdefghij"):
        for options in (
            {},
            {"batch_size": 3},
            {"batch_size": 3, "drop_last": True},
            {"batch_size": 4, "shuffle": True},
            {"batch_size": 4, "shuffle": True, "generator": generator},
            {"batch_size": None},
            {"batch_size": None, "shuffle": True},
            {"sampler": [3, 1, 2], "batch_size": 2},
            {"sampler": data.RandomSampler(range(4), replacement=True, num_samples=5), "batch_size": 2},
            {"batch_sampler": [[0, 1], [2], [3, 3]]},
            {"batch_sampler": data.BatchSampler(data.RandomSampler(range(4)), 2, True)},
            {"batch_size": 5, "collate_fn": len},
            {"batch_size": None, "collate_fn": str},
        ):
            loader = data.DataLoader(dataset, **options)
            log += [len(loader), [structure(batch) for batch in loader], len(iter(loader))]
            log += [structure(next(iter(loader))), torch.rand(1)]
    log.append(torch.rand(1, generator=generator))


@program
def loading_iterables(torch, log):
    data, Counting = data_of(torch), counting_of(torch)
    torch.manual_seed(0)
    for options in ({}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}, {"shuffle": False}):
        loader = data.DataLoader(Counting(7), **options)
        log += [list(loader), list(loader)]
        attempt(log, len, loader)
        loader = data.DataLoader(Counting(7, told=5), **options)
        log += [len(loader), [type(batch).__name__ for batch in loader], torch.rand(1)]
    for options in (
        {"shuffle": True},
        {"sampler": [1]},
        {"batch_sampler": [[1]]},
    ):
        attempt(log, data.DataLoader, Counting(7), **options)
    attempt(log, next, iter(data.DataLoader(Counting(0))))


@program
def arguments(torch, log):
    data, Squares = data_of(torch), squares_of(torch)
    for options in (
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"num_workers": 1, "prefetch_factor": -2},
        {"persistent_workers": True},
        {"sampler": [1], "shuffle": True},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_sampler": [[1]], "shuffle": True},
        {"batch_sampler": [[1]], "sampler": [1]},
        {"batch_sampler": [[1]], "drop_last": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"batch_size": -1},
        {"batch_size": 2.5},
        {"drop_last": None},
        {"multiprocessing_context": "fork"},
        {"multiprocessing_context": "x", "num_workers": 1},
        {"multiprocessing_context": 3, "num_workers": 1},
        {"timeout": 3},
    ):
        attempt(log, lambda options=options: next(iter(data.DataLoader(Squares(), **options))))
    attempt(log, data.DataLoader, Squares(0), shuffle=True)
    log.append(list(data.DataLoader(Squares(0))))
    loader = data.DataLoader(Squares(), 2)
    for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
        attempt(log, setattr, loader, name, 3)
    loader.collate_fn = sum
    log.append(next(iter(loader)))
    names = "batch_size drop_last num_workers prefetch_factor pin_memory pin_memory_device timeout worker_init_fn generator in_order"
    log += [getattr(loader, name) for name in names.split()]
    log += [loader.multiprocessing_context, loader._dataset_kind, loader._auto_collation]
    log += [next(iter(data.DataLoader(Squares(), pin_memory=True)))]
    log += [next(iter(data.DataLoader(Squares(), pin_memory=True, pin_memory_device="cuda")))]
    attempt(log, pickle.dumps, iter(loader))
    iterator = iter(loader)
    log += [iter(iterator) is iterator, len(list(iterator)), list(iterator), data.get_worker_info()]
    kind = data._DatasetKind
    log += [kind.Map, kind.Iterable]
    log.append(kind.create_fetcher(kind.Map, [1, 2, 3], True, list, False).fetch([0, 2]))
    data.DataLoader(Squares(), num_workers=999)  # warns


@program
def samples_together(torch, log):
    data = data_of(torch)

    class Together(data.Dataset):
        def __len__(self):
            return 5

        def __getitem__(self, index):
            return index

        def __getitems__(self, indices):
            log.append(indices)
            return [10 * index for index in indices]

    log.append(list(data.DataLoader(Together(), 2)))
    log.append(list(data.DataLoader(data.Subset(Together(), [4, 2, 0]), 2)))
    log.append(list(data.DataLoader(Together(), batch_size=None)))


@program
def tensor_batches(torch, log):
    """Where whole batches are taken at once, and where they aren't: all that could tell the difference."""
    data = data_of(torch)
    base = torch.arange(24.0).view(6, 4)
    for tensors in (
        (base, torch.arange(6)),
        (base.t().contiguous().t(), base[:, 1]),
        (base[::2],),
        (base.clone().requires_grad_(),),
        (base * 2, torch.ones(6, requires_grad=True) * 3),
        (torch.tensor([True] * 6), base.to(torch.complex64), base.to(torch.float16)),
        (torch.zeros(6, 0), torch.zeros(6)),
    ):
        dataset = data.TensorDataset(*tensors)
        subset = data.Subset(dataset, torch.tensor([2, 0, 1]))
        for source, indices in (
            (dataset, [0, 2]),
            (dataset, [-1, 1]),
            (dataset, [True, False]),
            (dataset, [torch.tensor(1), torch.tensor(2)]),
            (dataset, [np.int64(1)]),
            (dataset, [0, 7]),
            (dataset, [slice(0, 2)]),
            (dataset, [[0, 1], [1, 2]]),
            (dataset, []),
            (data.Subset(dataset, [2, 1, 0]), [0, 2]),
            (data.Subset(dataset, [2, 1, 0]), [3]),
            (data.Subset(data.Subset(dataset, [2, 1, 0]), [1, 0]), [1, 0]),
            (subset, [0, 1]),
        ):
            for grad in (torch.enable_grad, torch.no_grad, torch.inference_mode):
                with grad():
                    try:
                        (batch,) = data.DataLoader(source, batch_sampler=[indices])
                    except Exception as error:
                        log.append(error)
                        continue
                    log += [structure(batch), [(t.is_inference(), t.is_leaf, t.requires_grad) for t in batch]]
                    if all(type(index) is int for index in indices):
                        log.append([t.is_contiguous() for t in batch])
                    batch[0].detach().fill_(-1)
                    log.append(tensors[0])  # batches are copies


@pytest.mark.parametrize("name", program)
def test_program(name):
    assert_same_log(program[name])


def test_batches_of_tensors_are_taken_at_once():
    """One index operation per tensor: no sample is ever made."""
    data = data_of(backlight)
    dataset = data.TensorDataset(backlight.arange(6.0), backlight.arange(6))
    fetch = importlib.import_module("backlight.utils.data._utils.fetch")
    assert type(iter(data.DataLoader(dataset, 2))._dataset_fetcher) is fetch.TensorFetcher
    assert type(iter(data.DataLoader(data.Subset(dataset, [1, 2]), 2))._dataset_fetcher) is fetch.TensorFetcher

    class Augmented(data.TensorDataset):
        def __getitem__(self, index):
            return [tensor + 100 for tensor in super().__getitem__(index)]

    (batch,) = data.DataLoader(Augmented(backlight.arange(3.0)), 3)
    assert batch[0].tolist() == [100, 101, 102]
    assert type(iter(data.DataLoader(dataset, 2, collate_fn=list))._dataset_fetcher) is fetch.MapFetcher


def test_no_prefetching_with_workers():
    loader = data_of(backlight).DataLoader(range(5), num_workers=1, prefetch_factor=0)
    with pytest.raises(AssertionError, match="prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter"):
        iter(loader)


def test_distributed_sampler_needs_a_process_group_or_numbers():
    for library in (torch, backlight):
        with pytest.raises(ValueError, match="Default process group has not been initialized"):
            data_of(library).DistributedSampler(range(5))


def test_names_and_modules():
    theirs, ours = data_of(torch), data_of(backlight)
    pipes = {name for name in theirs.__all__ if "Pipe" in name or "pipe" in name} | {
        "DataChunk", "argument_validation", "non_deterministic", "runtime_validation", "runtime_validation_disabled",
    }  # fmt: skip
    assert set(theirs.__all__) - pipes == set(ours.__all__)
    assert backlight.utils.data is ours
    for module, name in (
        ("dataset", "TensorDataset"),
        ("sampler", "RandomSampler"),
        ("dataloader", "DataLoader"),
        ("dataloader", "default_collate"),
        ("dataloader", "_SingleProcessDataLoaderIter"),
        ("dataloader", "_BaseDataLoaderIter"),
        ("dataloader", "_MultiProcessingDataLoaderIter"),
        ("distributed", "DistributedSampler"),
        ("_utils.collate", "default_collate"),
        ("_utils.worker", "WorkerInfo"),
    ):
        for lib in (torch, backlight):
            assert hasattr(importlib.import_module(f"{lib.__name__}.utils.data.{module}"), name)
