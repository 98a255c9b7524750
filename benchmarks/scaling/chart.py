"""docs/images/scaling.svg: measured and predicted allreduce, efficiency up to 10,000 ranks, the size of buckets, one server and a pipeline."""

from __future__ import annotations

from pathlib import Path

from . import costs, measure, report, simulation

CHART = Path(__file__).parent.parent.parent / "docs" / "images" / "scaling.svg"
COLORS = ("#1a7f64", "#c2561a", "#3b5b9d", "#8a6d1b")


def write(measured: dict, path: Path = CHART) -> None:
    """Draws it. The same measurements give the same file; the format is that of the file's suffix."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    style = {"svg.hashsalt": "scaling", "font.family": "DejaVu Sans", "font.size": 9, "figure.facecolor": "white"}
    with plt.rc_context(style):
        figure, axes = plt.subplots(2, 2, figsize=(10, 7.4))
        _measured(axes[0, 0], measured)
        _efficiency(axes[0, 1])
        _buckets(axes[1, 0])
        _remote(axes[1, 1], measured)
        for one in axes.flat:
            one.grid(color="#dddddd", linewidth=0.7)
            one.set_axisbelow(True)
            one.spines[["top", "right"]].set_visible(False)
        figure.tight_layout(h_pad=2.5, w_pad=2.5)
        figure.savefig(path, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None)
        plt.close(figure)


def _measured(axes, measured: dict) -> None:
    network = measure.fit(measured)
    for n, color in zip((2, 3, 4), COLORS):
        found = measured[str(n)]["allreduce"]
        sizes = [int(size) for size in found]
        axes.plot(sizes, list(found.values()), "o", color=color, markersize=4)
        line = [2.0 ** (i / 4) for i in range(12, 97)]
        label = f"{n} ranks, {measured['processors']} processors"
        axes.plot(line, [costs.allreduce(n, size, network) for size in line], color=color, label=label)
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="seconds")
    axes.set_title("Allreduce on one machine: measured (points), formula (lines)", fontsize=9)
    axes.legend(frameon=False, fontsize=8)


def _efficiency(axes) -> None:
    ranks = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000]
    work = report.MEDIUM
    for network, color in zip(report.NETWORKS, COLORS):
        for algorithm, spread, style in (("best", 0.0, ":"), ("best", report.SPREAD, "-"), ("ring", report.SPREAD, "--")):
            values = [report.efficiency(n, work, network, spread, algorithm) for n in ranks]
            label = f"{network.name}, {algorithm}, spread {spread:.0%}"
            axes.plot(ranks, values, style, color=color, label=label)
    axes.set(xscale="log", xlabel="ranks", ylabel="part of the time spent computing", ylim=(0, 1.05))
    axes.set_title(f"DDP, {work.name}, 0.3 s of computing each (simulated)", fontsize=9)
    axes.legend(frameon=False, fontsize=7, loc="lower left")


def _buckets(axes) -> None:
    sizes = [2.0 ** (i / 2) * 2**14 for i in range(25)]
    work, network = report.MEDIUM, report.ETHERNET
    for n, color in zip((8, 64, 1024, 10_000), COLORS):
        for algorithm, style in (("best", "-"), ("ring", "--")):
            values = [costs.ddp_step(n, work, network, size, algorithm) for size in sizes]
            label = f"{n:,} ranks" if algorithm == "best" else None
            axes.plot([size / 2**20 for size in sizes], values, style, color=color, label=label)
    axes.axvline(25, color="black", linewidth=0.7)
    axes.set(xscale="log", xlabel="bucket in MiB (line: PyTorch's 25)", ylabel="seconds per step", ylim=(0.25, 1.2))
    axes.set_title(f"Size of buckets, {work.name}, {network.name} (ring: dashed)", fontsize=9)
    axes.legend(fontsize=8, loc="upper center", facecolor="white", edgecolor="white", framealpha=1)


def _remote(axes, measured: dict) -> None:
    workers = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    work = report.MEDIUM
    compute = work.forward + work.backward
    axes.plot(workers, workers, color="#999999", linewidth=0.8, label="ideal")
    for network, color in zip(report.NETWORKS, COLORS):
        rpc = report.python_over(network, measured)
        alone = costs.server_step(1, compute, work.gradients, rpc)
        server = [n * alone / simulation.server_step(n, compute, work.gradients, rpc, report.SPREAD, 20) for n in workers]
        axes.plot(workers, server, color=color, label=f"parameter server, {network.name}")
        one = costs.pipeline_step(1, 64, work, 2**20, rpc)
        line = [one / simulation.pipeline_step(n, 64, work, 2**20, rpc, report.SPREAD, 5) for n in workers]
        axes.plot(workers, line, "--", color=color, label=f"pipeline of 64 microbatches, {network.name}")
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="times as fast as one", ylim=(0.8, 200))
    axes.set_title(f"Distributed autograd over rpc, {work.name} (simulated)", fontsize=9)
    axes.legend(frameon=False, fontsize=7, loc="upper left")
