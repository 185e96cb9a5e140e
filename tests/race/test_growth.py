"""What layers cost is reported with every claim beside what was found."""

import json
from pathlib import Path

from regard.analysis.complexity import Cell, measure
from regard.analysis.layers import KINDS, products
from regard.race.growth import Traced, crossings_of, table, write_complexity

LENGTHS, WIDTHS = (32, 128, 256, 512, 2048), (64, 128)
# Costs that follow the operations exactly, at a billion a second.
CELLS = [
    Cell(kind, n, d, products(kind, n, d), products(kind, n, d) / 1e9, 4.0 * n * d)
    for kind in KINDS
    for d in WIDTHS
    for n in LENGTHS
]
TRACED = [Traced(kind, [1, 1, 1], [1, 2, 3]) for kind in KINDS]


def test_the_table_sets_each_claim_beside_the_exponents_found() -> None:
    rows = {row[0]: row for row in table(CELLS, TRACED)}
    assert rows["self-attention"][1:4] == ["O(n²·d)", "n^2.00 · d^1.00", "n^2.00 · d^1.00"]
    assert rows["recurrent"][1:5] == ["O(n·d²)", "n^1.00 · d^2.00", "n^1.00 · d^2.00", "n^1.00 · d^1.00"]
    assert rows["restricted self-attention"][2] == "n^1.00 · d^1.00"


def test_attention_costs_more_than_an_lstm_from_four_widths_on_and_its_layer_from_two() -> None:
    assert [row[:2] + row[3:4] for row in crossings_of(CELLS)] == [["64", "256", "128"], ["128", "512", "256"]]


def test_the_report_is_written_with_figures_numbers_and_what_was_skipped(tmp_path: Path) -> None:
    skipped = Cell("recurrent", 4096, 128, 1e12, skipped="skipped: a pass would take about 99.0 s, more than 2 s")
    html, png, told, text = write_complexity(tmp_path, [*CELLS, skipped], TRACED, "cpu")
    assert "would take about 99.0 s" in html.read_text(encoding="utf-8")
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert len(json.loads(told.read_text())["cells"]) == len(CELLS) + 1
    assert "| recurrent | O(n·d²) |" in text.read_text(encoding="utf-8")
    assert (tmp_path / "figures" / "complexity-over-length.svg").is_file()


def test_what_is_measured_fills_the_table() -> None:
    rows = table(list(measure((16, 32), (16, 32), budget=1.0)), TRACED)
    assert all("n^" in cell for row in rows for cell in row[2:5])
