"""The known answers: run on what the hub gives, and without it said to be missing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.errors import DownloadError  # noqa: E402
from inference_bench.labs import subject  # noqa: E402
from inference_bench.labs.hub_folder import SMOLLM2_135M_REVISION, HubFolder  # noqa: E402
from inference_bench.labs.quantise import reference  # noqa: E402
from inference_bench.labs.session import LabSession  # noqa: E402
from inference_bench.labs.settings import LabSettings  # noqa: E402
from inference_bench.labs.text import LabText  # noqa: E402
from labs import tiny as tiny_folder  # noqa: E402
from labs.quantise.tiny import tiny_network  # noqa: E402


def words() -> LabText:
    draw = random.Random(0)
    return LabText("words", "", "", "0" * 64, " ".join(draw.choice(tiny_folder.WORDS) for _ in range(9000)))


def test_published_settings_are_rerun_on_the_pinned_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny_network().save_pretrained(tmp_path)
    tiny_folder.write_tokenizer(tmp_path, 96)
    wanted: list[Any] = []

    def fetch(hub_id: Any, revision: str | None, *_: Any) -> HubFolder:
        wanted.append((str(hub_id.repo), revision))
        return HubFolder(tmp_path, str(revision))

    monkeypatch.setattr(subject, "fetch_hub_folder", fetch)
    monkeypatch.setattr(reference, "wikitext2_test", lambda _say: words())
    session = LabSession("quantise", "?", LabSettings(num_threads=1))
    found = reference.run_reference(session)
    assert wanted == [("HuggingFaceTB/SmolLM2-135M", SMOLLM2_135M_REVISION)]
    assert [row.name for row in found.rows] == [known.name for known in reference.KNOWN]
    assert all(row.ours is not None and row.ours > 1 for row in found.rows)
    for row in found.rows:
        assert row.difference_fraction == pytest.approx((row.ours or 0) / row.published - 1)
    assert session.subject is None  # the lab's own subject is not replaced


def test_without_the_hub_the_published_figures_stand_alone_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_say: Any) -> LabText:
        raise DownloadError("the hub does not answer")

    monkeypatch.setattr(reference, "wikitext2_test", unreachable)
    found = reference.run_reference(LabSession("quantise", "?", LabSettings()))
    assert [row.ours for row in found.rows] == [None] * 9
    assert found.note == "the published settings were not rerun: the hub does not answer"


def test_the_known_answers_are_those_of_the_specification() -> None:
    assert [known.perplexity for known in reference.KNOWN] == [
        20.8462, 21.6252, 20.9937, 46.2519, 29.1763, 27.1402, 40.8337, 26.2966, 23.6349,
    ]  # fmt: skip
