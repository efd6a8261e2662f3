"""Renders the tables of docs/results/*.md and docs/lab/*.md from the JSON files in docs/results.

    python3 docs/results/render_tables.py            rewrites the tables in place
    python3 docs/results/render_tables.py --check    exit status 1 if a page is out of date; writes nothing

A table stands between two markers:

    <!-- table: gemm.json bf16 -->
    <!-- end -->

The first word names a file in docs/results, the second a table in it. There are two kinds of files:

- an object with "tables": each has "columns" and "rows" of cells, which are printed as they are;
- a list of reports as benchmarks write it with --json (attention.json, gemm.json, scaling.json). For these a function
  below, listed in VIEWS, makes the columns and rows.

Needs Python 3.9 and nothing else.
"""

import argparse
import json
import pathlib
import re
import sys

RESULTS = pathlib.Path(__file__).resolve().parent
PAGES = (RESULTS, RESULTS.parent / "lab")
BEGIN = re.compile(r"^<!-- table: (\S+) (\S+) -->$")
END = "<!-- end -->"


class TableError(Exception):
    """A marker or a JSON file that cannot be rendered."""


def markdown(columns, rows):
    """The lines of a Markdown table. None is an empty cell."""
    for row in rows:
        if len(row) != len(columns):
            raise TableError(f"{len(row)} cells in a row of {len(columns)} columns: {row}")
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join("" if cell is None else str(cell) for cell in line) + " |" for line in lines]


# --- reports of benchmarks -------------------------------------------------------------------------------------------


def report(reports, title):
    """The one report whose title matches."""
    found = [one for one in reports if re.search(title, one["title"])]
    if len(found) != 1:
        raise TableError(f"{len(found)} reports with a title like '{title}'")
    return found[0]


def value(row, contestant):
    """The value of the one contestant whose name matches."""
    found = [number for name, number in row["values"].items() if re.search(contestant, name)]
    if len(found) != 1:
        raise TableError(f"{len(found)} contestants like '{contestant}' in {row['problem']}")
    return found[0]


# --- attention.json --------------------------------------------------------------------------------------------------

IMBREX = r"^Imbrex$"
LAZY = r"^Imbrex, lazy rescaling$"


def attention_forward(reports):
    """TFLOP/s; in brackets the ratio to cuDNN and, for Imbrex, to FlashAttention-3."""
    rows = []
    for head_dim in (128, 64, 96):
        for mask in ("full", "causal"):
            for row in report(reports, rf"(head_dim|depth) {head_dim}, {mask}$")["rows"]:
                cudnn, flash3 = value(row, "^cuDNN$"), value(row, "^FlashAttention-3$")
                length = int(re.match(r"\d+ x (\d+)", row["problem"])[1]) // 1024

                def ours(name):
                    speed = value(row, name)
                    return f"{speed:.0f} ({speed / cudnn:.2f}x, {speed / flash3:.2f}x)"

                rows.append(
                    [
                        f"{head_dim}, {mask}",
                        f"{length}k",
                        f"{cudnn:.0f}",
                        f"{value(row, '^FlashAttention-2$'):.0f}",
                        f"{flash3:.0f} ({flash3 / cudnn:.2f}x)",
                        ours(IMBREX),
                        ours(LAZY),
                    ]
                )
    names = ["cuDNN", "FlashAttention-2", "FlashAttention-3", "Imbrex", "Imbrex, lazy rescaling"]
    return ["head_dim, mask", "seqlen", *names], rows


def attention_backward(reports):
    """TFLOP/s; in brackets the ratio to cuDNN, of the deterministic kernel to the other."""
    rows = []
    for head_dim in (128, 64, 96, 256):
        for mask in ("full", "causal"):
            for row in report(reports, rf"head_dim {head_dim}, {mask}$")["rows"]:
                cudnn, flash2, ours = (value(row, name) for name in ("^cuDNN$", "^FlashAttention-2$", IMBREX))
                ordered = row["values"].get("Imbrex, deterministic")
                length = int(re.match(r"\d+ x (\d+)", row["problem"])[1]) // 1024
                rows.append([f"{head_dim}, {mask}", f"{length}k", f"{cudnn:.0f}", f"{flash2:.0f}",
                             f"{ours:.0f} ({ours / cudnn:.2f}x)",
                             f"{ordered:.0f} ({ordered / ours:.2f}x)" if ordered else "-"])  # fmt: skip
    return ["head_dim, mask", "seqlen", "cuDNN", "FlashAttention-2", "Imbrex", "deterministic"], rows


def attention_backward_sm_80(reports):
    """TFLOP/s; in brackets the ratio to FlashAttention-2."""
    rows = []
    for head_dim in (128, 64, 96, 256):
        for mask in ("full", "causal"):
            for row in report(reports, rf"head_dim {head_dim}, {mask}$")["rows"]:
                flash2, ours = value(row, "^FlashAttention-2$"), value(row, "^Imbrex, sm_80$")
                length = int(re.match(r"\d+ x (\d+)", row["problem"])[1]) // 1024
                rows.append([f"{head_dim}, {mask}", f"{length}k", f"{flash2:.0f}", f"{ours:.0f} ({ours / flash2:.2f}x)"])
    return ["head_dim, mask", "seqlen", "FlashAttention-2", "Imbrex, sm_80"], rows


def attention_backward_accuracy(reports):
    """Relative errors of dQ, dK, dV (and dBias) in units of 1e-3; contestants that lack a feature have none."""
    names = ["FlashAttention-2", "cuDNN", "bf16 formula", "Imbrex"]
    kinds = {}
    for row in report(reports, "relative error against float64")["rows"]:
        kinds.setdefault(row["problem"].rsplit(", ", 1)[0], []).append(row["values"])
    rows = [
        [kind, *(", ".join(f"{one[name]:.2f}" for one in found if name in one) or "-" for name in names)]
        for kind, found in kinds.items()
    ]
    return ["1e-3: dQ, dK, dV", "FlashAttention-2", "cuDNN", "PyTorch, bf16 formula", "Imbrex"], rows


def attention_fp8(reports):
    """TFLOP/s of the best tile shapes."""
    rows = []
    for head_dim in (128, 64, 256):
        for mask in ("full", "causal"):
            for row in report(reports, rf"head_dim {head_dim}, {mask}$")["rows"]:
                def best(sum_of, row=row):
                    all_shapes = {name: x for name, x in row["values"].items() if f" {sum_of}_" in name}
                    if not all_shapes:
                        one = row["values"].get(f"Imbrex {sum_of}")
                        return f"{one:.0f}" if one else "-"
                    name = max(all_shapes, key=all_shapes.get)
                    default = row["values"][f"Imbrex {sum_of}"]
                    if all_shapes[name] <= default:
                        return f"{default:.0f}"
                    return f"{default:.0f}; {all_shapes[name]:.0f} ({name.split(' ')[1].replace(sum_of + '_', '')})"

                length = int(re.match(r"\d+ x (\d+)", row["problem"])[1]) // 1024
                rows.append([f"{head_dim}, {mask}", f"{length}k", f"{value(row, '^cuDNN, bf16$'):.0f}", best("fast"),
                             best("promoted")])  # fmt: skip
    return ["head_dim, mask", "seqlen", "cuDNN, bf16", "fast", "promoted"], rows


def attention_fp8_ada(reports):
    """TFLOP/s of the Ada-class kernel; in brackets the ratio to the 16-bit Ampere-class one."""
    rows = []
    for head_dim in (128, 64):
        for mask in ("full", "causal"):
            for row in report(reports, rf"e4m3, head_dim {head_dim}, {mask}$")["rows"]:
                ampere = value(row, "Ampere-class$")
                fast, promoted = (value(row, f"^Imbrex ada_{name}$") for name in ("fast", "promoted"))
                length = int(re.match(r"\d+ x (\d+)", row["problem"])[1]) // 1024
                rows.append([f"{head_dim}, {mask}", f"{length}k", f"{ampere:.0f}", f"{fast:.0f} ({fast / ampere:.2f}x)",
                             f"{promoted:.0f} ({promoted / ampere:.2f}x)"])  # fmt: skip
    return ["head_dim, mask", "seqlen", "bf16, Ampere-class", "e4m3, fast", "e4m3, promoted"], rows


def attention_kv_cache(reports):
    """TFLOP/s of each cache, with the ratio to contiguous K and V."""
    titles = ["4 x 4096, full", "4 x 4096, causal", "1 x 16384, full", "1 x 16384, causal"]
    chosen = [report(reports, rf"{title}(, and windows)?$") for title in titles]
    rows = []
    for number, row in enumerate(chosen[0]["rows"]):
        cells = []
        for one in chosen:
            speed, plain = (value(one["rows"][number], name) for name in (IMBREX, "^plain$"))
            cells.append(f"{speed:.0f} ({speed / plain:.2f}x)")
        name = row["problem"].replace("plain", "contiguous bf16")
        rows.append([re.sub(r"^paged, (\d+)", r"pages of \1 rows", name), *cells])
    return ["K and V", *titles], rows


def norm(reports):
    """GB/s of PyTorch, torch.compile and Imbrex."""
    rows = []
    for one in reports:
        for row in one["rows"]:
            pytorch, compiled, ours = (value(row, name) for name in ("^PyTorch$", "^torch.compile$", IMBREX))
            name = one["title"].replace(", bf16", "")
            rows.append([name, row["problem"], f"{pytorch:.3g}", f"{compiled:.3g}", f"{ours:.3g}"])
    return ["kernel", "rows x columns", "PyTorch", "torch.compile", "Imbrex"], rows


def pytorch_throughput(reports):
    """The operator beside launches from C++, with the ratio."""
    rows = []
    for mask in ("full", "causal"):
        for row in report(reports, f"head_dim 128, {mask}")["rows"]:
            cpp, operator = value(row, r"^C\+\+$"), value(row, "^PyTorch$")
            rows.append([f"{mask}, {row['problem']}", f"{cpp:.0f}", f"{operator:.0f}", f"{operator / cpp:.2f}x"])
    return ["mask, seqlen", "C++", "PyTorch", "ratio"], rows


def pytorch_overhead(reports):
    """Host time of a call in us."""
    names = [r"^C\+\+$", "^PyTorch$", "^overhead$", "^PyTorch's own attention$"]
    rows = [[row["problem"], *(f"{value(row, name):.1f}" for name in names)] for row in report(reports, "host time")["rows"]]
    return ["us", "C++", "imbrex_torch", "difference", "PyTorch's own attention"], rows


def pytorch_llama(reports):
    """Tokens per second, and how much faster Imbrex is."""
    rows = []
    for row in report(reports, "^Llama")["rows"]:
        ours = value(row, "^imbrex$")
        peers = [value(row, name) for name in ("^sdpa, cuDNN$", "^sdpa, FlashAttention-2$")]
        rows.append([row["problem"], *(f"{one:.0f} ({ours / one:.2f}x)" for one in peers), f"{ours:.0f}"])
    return ["", "sdpa, cuDNN", "sdpa, FlashAttention-2", "Imbrex"], rows


def attention_accuracy(reports):
    """Relative error in units of 1e-3."""
    names = ["^cuDNN$", "^FlashAttention-2$", "^FlashAttention-3$", IMBREX, LAZY]
    rows = [
        [row["problem"].replace("depth", "head_dim"), *(f"{value(row, name):.2f}" for name in names)]
        for row in report(reports, "relative error against float64")["rows"]
    ]
    return ["1e-3", "cuDNN", "FlashAttention-2", "FlashAttention-3", "Imbrex", "Imbrex, lazy rescaling"], rows


# --- gemm.json -------------------------------------------------------------------------------------------------------


def gemm_bf16(reports):
    """TFLOP/s sustained and paused."""
    sustained, paused = report(reports, "^bf16, A and B.*, sustained$"), report(reports, "^bf16, A and B.*, paused$")

    def speeds(row):
        peer, ours = value(row, "^cuBLAS$"), value(row, "^Imbrex$")
        return [f"{peer:.0f}", f"{ours:.0f}", f"{ours / peer:.2f}x"]

    rows = [[a["problem"], *speeds(a), *speeds(b)] for a, b in zip(sustained["rows"], paused["rows"])]
    names = {
        "A, B transposed": "8192 cubed, B column-major",
        "A transposed, B": "8192 cubed, A column-major",
        "both transposed": "8192 cubed, both column-major",
    }
    for row in report(reports, "^bf16 8192 x 8192 x 8192, (operands|other layouts)")["rows"]:
        rows.append([names.get(row["problem"], row["problem"]), *speeds(row), None, None, None])
    return ["M x N x K", "cuBLAS, sustained", "Imbrex", "ratio", "cuBLAS, paused", "Imbrex", "ratio"], rows


def gemm_small_m(reports):
    """TB/s, in the order of the page: 8192 x 8192 by rows, then the others."""
    rows = report(reports, "few rows|small.M")["rows"]

    def key(row):
        m, n, k = map(int, re.match(r"(\d+) x (\d+) x (\d+)", row["problem"]).groups())
        return ((n, k) != (8192, 8192), m if (n, k) == (8192, 8192) else rows.index(row))

    names = ["^cuBLAS$", "^Imbrex$", "^Imbrex, (constant weights|PDL prefetch)"]
    cells = [[row["problem"], *(f"{value(row, name):.2f}" for name in names)] for row in sorted(rows, key=key)]
    return ["M x N x K", "cuBLAS", "Imbrex", "Imbrex, `pdl_prefetch::weights`"], cells


def gemm_quantised(reports):
    """Microseconds a launch and the speed-up over bf16."""
    rows = []
    for row in report(reports, "^quantised weights")["rows"]:
        bf16 = value(row, "^bf16$")
        others = (value(row, name) for name in ("^int4", "^MXFP4$", "^int8$"))
        rows.append(
            [row["problem"].split()[0], f"{1000 / bf16:.1f}", *(f"{1000 / v:.1f} ({v / bf16:.2f}x)" for v in others)]
        )
    return ["M", "bf16", "int4, groups of 128", "MXFP4", "int8"], rows


# --- moe.json --------------------------------------------------------------------------------------------------------


def moe_table(title, base):
    """TFLOP/s of each contestant and, in brackets, its ratio to the base."""

    def view(reports):
        found = report(reports, title)["rows"]
        names = list(found[0]["values"])

        def cell(row, name):
            speed = row["values"][name]
            return f"{speed:.0f}" if name == base else f"{speed:.0f} ({speed / row['values'][base]:.2f}x)"

        return ["problem", *names], [[row["problem"], *(cell(row, name) for name in names)] for row in found]

    return view


def moe_router(reports):
    """Microseconds."""
    names = ("router", "combine")
    rows = report(reports, "^router and combine")["rows"]
    return ["tokens", "router, us", "combine, us"], [
        [row["problem"].split()[0], *(f"{value(row, f'^{name}$'):.1f}" for name in names)] for row in rows
    ]


def moe_few_tokens(reports):
    """TB/s of weights."""
    rows = report(reports, "^few tokens")["rows"]
    names = ("gate and up", "down", "both")
    return ["tokens", *names], [
        [row["problem"].split()[0], *(f"{value(row, f'^{name}$'):.2f}" for name in names)] for row in rows
    ]


# --- scaling.json ----------------------------------------------------------------------------------------------------

SCHEDULES = ("ring", "zigzag", "striped", "best mesh", "Ulysses")


def milliseconds(seconds):
    time = seconds * 1e3
    return f"{time:.0f} ms" if time >= 100 else f"{time:.1f} ms"


def scaling(kind, kv_heads, cell, columns):
    def view(reports):
        table = report(reports, rf"{kind} scaling.*, 32:{kv_heads} heads$")
        rows = []
        for row in table["rows"]:
            found = row["schedules"]
            cells = [cell(name, found[name]) if name in found else None for name in SCHEDULES]
            rows.append([row[column] for column in columns] + cells)
        return [{"gpus": "GPUs", "tokens": "tokens"}[column] for column in columns] + list(SCHEDULES), rows

    return view


def efficiency(name, one):
    text = f"{one['efficiency']:.1%}, {milliseconds(one['seconds'])}"
    return f"{text}, a = {one['q_chunks']}" if name == "best mesh" else text


def breakdown(_, one):
    return f"{one['hidden']:.1%}, {one['exposed']:.1%}, {one['idle']:.1%}"


# --- checker_device.json: the corpus of hazards on a GPU --------------------------------------------------------------

SANITIZER = ("memcheck", "racecheck", "initcheck", "synccheck")


def reported(case):
    """Whether any tool of compute-sanitizer reports the wrong variant."""
    return any(seen.get("wrong") == "detected" for seen in case["tools"].values())


def told_apart(case):
    """Whether one of them reports the wrong variant and is silent about the fixed one."""
    return any(seen.get("wrong") == "detected" and seen.get("fixed") == "silent" for seen in case["tools"].values())


def device_families(data):
    columns = ["family", "wrong kernels", "detected by Imbrex", "reported by compute-sanitizer", "and the fixed variant not",
               "hang", "wrong results or an error", "nothing to see"]  # fmt: skip
    wrong = [case for case in data["cases"] if case["kind"] != "correct"]

    def row(title, cases):
        def count(holds):
            return sum(1 for case in cases if holds(case))

        return [title, len(cases), count(lambda case: case["imbrex"] == "detected"), count(reported), count(told_apart),
                count(lambda case: case["results"] == "hang"),
                count(lambda case: case["results"] in ("different", "error")),
                count(lambda case: case["results"] == "same")]  # fmt: skip

    families = dict.fromkeys(case["family"] for case in wrong)
    rows = [row(f"`{family}`", [case for case in wrong if case["family"] == family]) for family in sorted(families)]
    return columns, rows + [row("all", wrong)]


def device_tools(data):
    columns = ["tool", "wrong kernels reported", "of these, the fixed variant, too", "correct kernels reported",
               "kernels that did not end"]  # fmt: skip
    rows = []
    for tool in SANITIZER:
        seen = [(case["kind"], case["tools"][tool]) for case in data["cases"]]
        rows.append([tool,
                     sum(1 for _, found in seen if found.get("wrong") == "detected"),
                     sum(1 for _, found in seen if found.get("wrong") == found.get("fixed") == "detected"),
                     sum(1 for kind, found in seen if kind == "correct" and found["fixed"] == "detected"),
                     sum(1 for _, found in seen if "hang" in found.values())])  # fmt: skip
    wrong = [case for case in data["cases"] if case["kind"] != "correct"]
    correct = [case for case in data["cases"] if case["kind"] == "correct"]
    rows.append(["Imbrex", sum(1 for case in wrong if case["imbrex"] == "detected"), 0,
                 sum(1 for case in correct if case["imbrex"] != "silent"), 0])  # fmt: skip
    return columns, rows


# --- fleet_*.json ------------------------------------------------------------------------------------------------------


def fleet_validation(rows):
    """Measured and simulated latencies in ms, and the error of the simulation."""
    columns = ["trace", "figure", "measured", "simulated", "error"]
    figures = [(f"{key.upper()} {share}, ms", key, share) for key in ("ttft", "itl")
               for share in ("mean", "p50", "p90", "p99")]  # fmt: skip

    def cells(row, name, measured, simulated):
        return [row["trace"], name, f"{measured:.1f}", f"{simulated:.1f}", f"{100 * (simulated / measured - 1):+.1f}%"]

    made = []
    for row in rows:
        for name, key, share in figures:
            made.append(cells(row, name, 1e3 * row["measured"][key][share], 1e3 * row[key][share]))
        made.append(cells(row, "tokens/s", row["measured"]["tokens_per_second"], row["tokens_per_second"]))
    return columns, made


def fleet_costs(data):
    """Coefficients in microseconds; those of a query and a key and of a token in the KV cache in nanoseconds."""
    names = ["step", "prompt", "prompt_token", "pair", "sequence", "context_token"]
    columns = ["step", "constant, us", "prompt, us", "prompt token, us", "query and key, ns", "sequence, us",
               "KV cache token, ns"]  # fmt: skip
    rows = []
    for kind, title in (("decode", "decodes only"), ("mixed", "with prompts")):
        values = [data[kind][name] * (1e9 if name in ("pair", "context_token") else 1e6) for name in names]
        unused = ("prompt", "prompt_token", "pair") if kind == "decode" else ()
        rows.append([title, *("-" if name in unused else f"{x:.4g}" for name, x in zip(names, values))])
    return columns, rows


def fleet_sizes(data):
    """The smallest number of replicas of each policy; in brackets the p99 of the TTFT in ms."""
    policies = list(dict.fromkeys(row["policy"] for row in data["rows"]))
    rows = []
    for rate in sorted({row["rate"] for row in data["rows"]}):
        found = {row["policy"]: row for row in data["rows"] if row["rate"] == rate}
        rows.append([f"{rate:g}", f"{max(one['tokens_per_second'] for one in found.values()):.0f}",
                     *(f"{found[name]['replicas']} ({1e3 * found[name]['ttft']['p99']:.0f})" if name in found else "-"
                       for name in policies)])  # fmt: skip
    return ["conversations/s", "output tokens/s", *policies], rows


VIEWS = {
    ("fleet_validation.json", "validation"): fleet_validation,
    ("fleet_costs.json", "costs"): fleet_costs,
    ("fleet_sizes.json", "sizes"): fleet_sizes,
    ("checker_device.json", "families"): device_families,
    ("checker_device.json", "tools"): device_tools,
    ("attention.json", "forward"): attention_forward,
    ("attention.json", "accuracy"): attention_accuracy,
    ("attention_backward.json", "backward"): attention_backward,
    ("attention_backward_sm_80.json", "sm_80"): attention_backward_sm_80,
    ("attention_backward_accuracy.json", "accuracy"): attention_backward_accuracy,
    ("attention_fp8.json", "fp8"): attention_fp8,
    ("attention_fp8.json", "ada"): attention_fp8_ada,
    ("attention_kv_cache.json", "caches"): attention_kv_cache,
    ("moe.json", "bf16"): moe_table("^bf16", "dense GEMM"),
    ("moe.json", "mxfp4"): moe_table("^MXFP4", "bf16, gathered"),
    ("moe.json", "few_tokens"): moe_few_tokens,
    ("moe.json", "router"): moe_router,
    ("norm.json", "norm"): norm,
    ("pytorch.json", "throughput"): pytorch_throughput,
    ("pytorch.json", "overhead"): pytorch_overhead,
    ("pytorch_llama.json", "llama"): pytorch_llama,
    ("gemm.json", "bf16"): gemm_bf16,
    ("gemm.json", "small_m"): gemm_small_m,
    ("gemm.json", "quantised"): gemm_quantised,
}
for _kind in ("strong", "weak"):
    for _heads in (32, 8):
        VIEWS["scaling.json", f"{_kind}_{_heads}"] = scaling(_kind, _heads, efficiency, ("gpus", "tokens"))
        VIEWS["scaling.json", f"{_kind}_{_heads}_breakdown"] = scaling(_kind, _heads, breakdown, ("gpus",))


# --- pages -----------------------------------------------------------------------------------------------------------


def table(folder, file, name):
    """The lines of the table that a marker names."""
    path = folder / file
    if not path.is_file():
        raise TableError(f"{file}: no such file in {folder.name}/")
    data = json.loads(path.read_text(encoding="utf-8"))
    if (file, name) in VIEWS:
        return markdown(*VIEWS[file, name](data))
    if isinstance(data, dict) and name in data.get("tables", {}):
        one = data["tables"][name]
        return markdown(one["columns"], one["rows"])
    raise TableError(f"{file}: no table '{name}'")


def render(text, folder):
    """The page with all its tables made anew."""
    lines, inside = [], None
    for number, line in enumerate(text.split("\n"), 1):
        found = BEGIN.match(line)
        if found:
            if inside:
                raise TableError(f"line {number}: the table of line {inside} has no '{END}'")
            inside = number
            try:
                lines += [line, *table(folder, *found.groups())]
            except TableError as error:
                raise TableError(f"line {number}: {error}") from None
        elif line == END:
            if not inside:
                raise TableError(f"line {number}: '{END}' without a table")
            inside = None
            lines.append(line)
        elif not inside:
            if line.startswith("<!-- table"):
                raise TableError(f"line {number}: expected '<!-- table: FILE NAME -->'")
            lines.append(line)
    if inside:
        raise TableError(f"line {inside}: the table has no '{END}'")
    return "\n".join(lines)


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    chosen = parser.parse_args(words)
    faults = 0
    for page in sorted(page for folder in PAGES for page in folder.glob("*.md")):
        name = f"{page.parent.name}/{page.name}"
        text = page.read_text(encoding="utf-8")
        try:
            rendered = render(text, RESULTS)
        except TableError as error:
            print(f"{name}: {error}", file=sys.stderr)
            faults += 1
            continue
        if rendered == text:
            continue
        if chosen.check:
            print(f"{name}: out of date; run docs/results/render_tables.py", file=sys.stderr)
            faults += 1
        else:
            page.write_text(rendered, encoding="utf-8")
            print(f"{name}: rewritten")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
