"""The table of layers, and tables of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.catalogue.layers import layer_table
from amp_migrate.catalogue.rules import CatalogueError

OWN = """
[layers.FusedLinear]
origins = ["mycompany.nn.FusedLinear"]
parameters = ["in_features", "out_features", "*", "bias"]
sizes = { in = "in_features", out = "out_features" }
widths = ["in", "out"]
"""


def test_a_table_of_ones_own_adds_layers(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    table = layer_table((str(tmp_path / "own.toml"),))
    found = table.at("mycompany.nn.FusedLinear")
    assert found is not None
    assert found.positional == ("in_features", "out_features")
    assert table.at("torch.nn.Linear") is not None
    assert layer_table().at("mycompany.nn.FusedLinear") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("layers = 3", "layers must be a table"),
        ("[layers.A]\norigins = []", "layers.A"),
        (OWN.replace('in = "in_features"', 'in = "inputs"'), "none of the parameters"),
        (OWN.replace('widths = ["in"', 'widths = ["depth"'), "none of the sizes"),
        (OWN + "colour = 3", "unknown keys: colour"),
        ("= 3", "own.toml"),
    ],
)
def test_a_malformed_table_is_told_by_its_file(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(CatalogueError, match=words):
        layer_table((str(path),))


def test_a_missing_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="none"):
        layer_table((str(tmp_path / "none.toml"),))
