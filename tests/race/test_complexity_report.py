"""The report on the complexity of layers shows the paper's claims next to the measurements."""

import json
from pathlib import Path

from regard.analysis.complexity import LayerCost, measure
from regard.analysis.layers import KINDS, matmul_flops
from regard.race.complexity_report import TracedLayer, complexity_table, crossover_table, write_complexity

LENGTHS, WIDTHS = (32, 128, 256, 512, 2048), (64, 128)
# Costs proportional to the FLOPs, at a billion per second.
COSTS = [
    LayerCost(kind, n, d, matmul_flops(kind, n, d), matmul_flops(kind, n, d) / 1e9, 4.0 * n * d)
    for kind in KINDS
    for d in WIDTHS
    for n in LENGTHS
]
TRACED = [TracedLayer(kind, [1, 1, 1], [1, 2, 3]) for kind in KINDS]


def test_the_table_shows_each_claim_and_the_fitted_exponents() -> None:
    rows = {row[0]: row for row in complexity_table(COSTS, TRACED)}
    assert rows["self-attention"][1:4] == ["O(n²·d)", "n^2.00 · d^1.00", "n^2.00 · d^1.00"]
    assert rows["recurrent"][1:5] == ["O(n·d²)", "n^1.00 · d^2.00", "n^1.00 · d^2.00", "n^1.00 · d^1.00"]
    assert rows["restricted self-attention"][2] == "n^1.00 · d^1.00"


def test_attention_crosses_an_lstm_at_four_times_the_width_and_its_layer_at_twice() -> None:
    assert [row[:2] + row[3:4] for row in crossover_table(COSTS)] == [["64", "256", "128"], ["128", "512", "256"]]


def test_the_report_has_figures_numbers_and_skipped_passes(tmp_path: Path) -> None:
    skipped = LayerCost("recurrent", 4096, 128, 1e12, skipped="skipped: a pass would take about 99.0 s, more than 2 s")
    html, png, data, text = write_complexity(tmp_path, [*COSTS, skipped], TRACED, "cpu")
    assert "would take about 99.0 s" in html.read_text(encoding="utf-8")
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert len(json.loads(data.read_text())["cells"]) == len(COSTS) + 1
    assert "| recurrent | O(n·d²) |" in text.read_text(encoding="utf-8")
    assert (tmp_path / "figures" / "complexity-over-length.svg").is_file()


def test_real_measurements_fill_the_table() -> None:
    rows = complexity_table(list(measure((16, 32), (16, 32), budget=1.0)), TRACED)
    assert all("n^" in cell for row in rows for cell in row[2:5])
