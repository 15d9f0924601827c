"""One checkpoint has one name, and a scan sees committed folders alone, the newest first."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.training.checkpoint.format.names import (
    CheckpointName,
    PartialName,
    is_removed_name,
    job_tag,
    parse_name,
    parse_partial,
    removed_name,
    scan,
)
from trainhall.training.fencing import FencingToken

names = st.builds(
    CheckpointName,
    step=st.integers(0, 10**12),
    attempt=st.integers(1, 10**6),
    generation=st.integers(1, 10**6),
)


def test_name_reads_as_documented() -> None:
    assert str(CheckpointName(120, 2, 1)) == "step-00000120-a2-g1"
    assert parse_name("step-00000120-a2-g1") == CheckpointName(120, 2, 1)
    assert parse_name("step-123456789-a1-g1") == CheckpointName(123456789, 1, 1)


@given(names)
def test_checkpoint_names_round_trip(name: CheckpointName) -> None:
    assert parse_name(str(name)) == name
    assert parse_name(removed_name(name)) is None
    assert is_removed_name(removed_name(name))
    partial = PartialName(job_tag("job"), name)
    assert parse_name(str(partial)) is None
    assert parse_partial(str(partial)) == partial


@given(
    st.one_of(
        st.text(),
        st.from_regex(r"step-\d{1,12}-a\d{1,3}-g\d{1,3}"),
        names.map(str).flatmap(
            lambda n: st.tuples(st.integers(0, len(n) - 1), st.characters()).map(
                lambda change: n[: change[0]] + change[1] + n[change[0] + 1 :]
            )
        ),
    )
)
def test_checkpoint_names_are_canonical(text: str) -> None:
    parsed = parse_name(text)
    assert parsed is None or str(parsed) == text


@pytest.mark.parametrize(
    "name",
    [
        "step-120-a1-g1",
        "step-0000000120-a1-g1",
        "step-00000120-a0-g1",
        "step-00000120-a01-g1",
        "step-00000120-a1-g1\n",
        "step-00000120-a1-g1.tmp",
        "../step-00000120-a1-g1",
        "step-٠٠٠٠٠١٢٠-a1-g1",
        "",
    ],
)
def test_other_names_are_no_checkpoints(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.parametrize("parts", [(-1, 1, 1), (0, 0, 1), (0, 1, 0)])
def test_impossible_parts_are_refused(parts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="a checkpoint has a step from 0"):
        CheckpointName(*parts)


def test_later_attempt_is_newer_whatever_its_step(tmp_path: Path) -> None:
    for name in ("step-00000300-a1-g1", "step-00000200-a1-g2", "step-00000100-a2-g1"):
        (tmp_path / name).mkdir()
    assert [found.path.name for found in scan(tmp_path)] == [
        "step-00000100-a2-g1",
        "step-00000200-a1-g2",
        "step-00000300-a1-g1",
    ]


def test_scan_passes_over_all_else(tmp_path: Path) -> None:
    good = tmp_path / "step-00000001-a1-g1"
    good.mkdir()
    (tmp_path / str(PartialName.of(FencingToken("job", 1, 1), 2))).mkdir()
    (tmp_path / removed_name(CheckpointName(3, 1, 1))).mkdir()
    (tmp_path / "step-00000004-a1-g1").write_text("a file")
    (tmp_path / "step-00000005-a1-g1").symlink_to(good)
    (tmp_path / "notes").mkdir()
    assert [found.path for found in scan(tmp_path)] == [good]
    assert scan(tmp_path / "missing") == []


@given(st.sets(names, max_size=8))
def test_scan_finds_all_newest_first(
    tmp_path_factory: pytest.TempPathFactory, chosen: set[CheckpointName]
) -> None:
    folder = tmp_path_factory.mktemp("scan")
    for name in chosen:
        (folder / str(name)).mkdir()
    found = [f.name for f in scan(folder)]
    assert set(found) == chosen
    assert found == sorted(found, key=lambda n: n.age_key, reverse=True)
