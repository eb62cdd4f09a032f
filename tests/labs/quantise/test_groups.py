"""Methods are shown with a group that divides every row."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.quantise.groups import usual_group  # noqa: E402


class Network(torch.nn.Module):
    """Two linear layers, and no head."""

    def __init__(self, columns: tuple[int, int]) -> None:
        super().__init__()
        self.one, self.two = (torch.nn.Linear(each, 4) for each in columns)

    def get_output_embeddings(self) -> None:
        return None


@pytest.mark.parametrize(("columns", "group"), [((576, 1536), 64), ((96, 64), 32), ((48, 64), 16), ((40, 64), None)])
def test_the_group_is_the_greatest_that_divides_every_row(columns: tuple[int, int], group: int | None) -> None:
    assert usual_group(Network(columns)) == group
