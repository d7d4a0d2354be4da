#!/usr/bin/env python3
"""plot_compare.py COMPARE.json OUT.png: what a rank of each program holds, by category. Ends in 4 without matplotlib."""

import json
import sys

ORDER = ("parameters", "gradients", "optimizer", "gradient_in_flight", "gathered", "partial_sums", "buckets", "workspace", "activations")


def main():
    if len(sys.argv) != 3:
        print("usage: plot_compare.py COMPARE.json OUT.png", file=sys.stderr)
        return 2
    try:
        import matplotlib
    except ImportError:
        print("error: Python has no matplotlib; the package python3-matplotlib has it", file=sys.stderr)
        return 4
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with open(sys.argv[1], encoding="utf-8") as file:
        comparison = json.load(file)
    programs = comparison["programs"]
    names = [p["program"] for p in programs]
    categories = list(ORDER) + sorted({c for p in programs for c in p["memory"]} - set(ORDER))
    figure, axes = pyplot.subplots(figsize=(8, 4.5), constrained_layout=True)
    # A category has its colour in every tier; the hatch says the tier.
    plain = list(dict.fromkeys(category.split()[-1] for category in categories))
    colour = {name: pyplot.get_cmap("tab10")(i % 10) for i, name in enumerate(plain)}
    bottom = [0.0] * len(programs)
    for category in categories:
        sizes = [p["memory"].get(category, {"measured": 0})["measured"] / 1e6 for p in programs]
        if not any(sizes):
            continue
        tier = category.split()[0] if " " in category else "device"
        axes.bar(names, sizes, bottom=bottom, label=category, color=colour[category.split()[-1]], edgecolor="white", linewidth=0.3, hatch={"device": "", "host": "//", "nvme": "xx"}.get(tier, ".."))
        bottom = [b + s for b, s in zip(bottom, sizes)]
    axes.margins(y=0.06)
    axes.set_ylabel("MB a rank (1e6 bytes), peaks by category")
    ranks = comparison["ranks"]
    axes.set_title(f"What a rank holds on {ranks} rank{'' if ranks == 1 else 's'}")
    axes.tick_params(axis="x", rotation=20)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], bbox_to_anchor=(1.0, 1.0), loc="upper left")  # in the order of the bars
    figure.savefig(sys.argv[2], dpi=150, format="png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
