"""The numbers of workers that an elastic job can have, and how a spec asks for them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.nodes.names import check_labels
from trainhall.training.spec import JobSpec, SpecError, parse_spec
from trainhall.training.spec.parse import validate_spec


def spec(resources: dict[str, Any], **more: Any) -> JobSpec:
    return validate_spec({"name": "x", "task": {"name": "digits"}, "resources": resources, **more})


def problem(resources: dict[str, Any], **more: Any) -> tuple[str, str]:
    with pytest.raises(SpecError) as caught:
        spec(resources, **more)
    (found,) = caught.value.problems
    return found.field, found.message


@pytest.mark.parametrize(
    ("more", "sizes"),
    [
        ({"training": {"global_batch_size": 60}}, (1, 2, 3, 4, 5, 6)),
        ({"training": {"global_batch_size": 64}}, (1, 2, 4)),
        ({"training": {"reproducible": True, "logical_shards": 4}}, (1, 2, 3, 4)),
        (
            {"task": {"name": "language_model"}, "parallelism": {"strategy": "fsdp", "tensor": 2}},
            (2, 4),
        ),
        ({"parallelism": {"strategy": "auto"}}, (1, 2, 3, 4, 5, 6)),
        ({"task": None, "script": {"path": "/train.py"}}, (1, 2, 3, 4, 5, 6)),
        ({"parallelism": {"data": 4}}, (4,)),
    ],
)
def test_sizes_follow_from_parallelism_and_batch(
    more: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    found = spec({"max_workers": 6}, **more)
    assert found.possible_workers == sizes
    assert found.resources.workers == sizes[-1]


def test_min_workers_defaults_to_one() -> None:
    assert spec({"max_workers": 4}).resources.min_workers == 1
    assert spec({"min_workers": 2, "max_workers": 4}).possible_workers == (2, 4)
    assert spec({"workers": 4}).possible_workers == (4,)


@pytest.mark.parametrize(
    ("resources", "field", "expected"),
    [
        ({"workers": 2, "max_workers": 4}, "resources.workers", "exclude each other"),
        ({"workers": 2, "min_workers": 1}, "resources.workers", "exclude each other"),
        ({"min_workers": 2}, "resources.max_workers", "is required with min_workers"),
        ({"min_workers": 5, "max_workers": 4}, "resources.min_workers", "at most max_workers, 4"),
        ({"min_workers": 0, "max_workers": 4}, "resources.min_workers", "at least 1"),
        ({"max_workers": 4097}, "resources.max_workers", "at most 4,096"),
        (
            {"min_workers": 5, "max_workers": 7},
            "training.global_batch_size",
            "no number of workers from 5 to 7 is possible; with 7: batch size 64 is not",
        ),
    ],
)
def test_refused_value_is_named(resources: dict[str, Any], field: str, expected: str) -> None:
    found, message = problem(resources)
    assert found == field
    assert expected in message


def test_single_number_of_workers_is_no_range() -> None:
    _, message = problem({"min_workers": 3, "max_workers": 3})
    assert message.startswith("batch size 64 is not divisible by 3 (3 workers)")


def test_error_at_every_size_omits_sizes() -> None:
    with pytest.raises(SpecError) as caught:
        validate_spec({
            "name": "x", "script": {"path": "/x.py"}, "parallelism": {"strategy": "fsdp"},
            "resources": {"min_workers": 2, "max_workers": 4},
        })  # fmt: skip
    assert caught.value.problems[0].message.startswith("fsdp is for tasks; a script distributes")


@pytest.mark.parametrize(
    "given",
    [
        {"training": {"global_batch_size": 8}},
        {"training": {"steps": 3}},
        {"checkpoint": {"every_steps": 3}},
        {"checkpoint": {"every_seconds": 3}},
    ],
)
def test_script_refuses_task_only_options(given: dict[str, Any]) -> None:
    script = {"name": "x", "script": {"path": "/x.py"}}
    again = validate_spec(validate_spec(script).model_dump(mode="json"))
    assert again.script is not None
    with pytest.raises(SpecError) as caught:
        validate_spec({**script, **given})
    assert "is for tasks" in caught.value.problems[0].message


def test_selector_has_labels_that_nodes_may_have() -> None:
    assert spec({"selector": {"rack.row-1": "c", "a" * 64: "x"}}).resources.selector
    check_labels({"a" * 64: "x"})
    with pytest.raises(InvalidValueError):
        check_labels({"a" * 65: "x"})
    assert problem({"selector": {"a" * 65: "x"}})[0].startswith("resources.selector")
    field, message = problem({"selector": {"gpu type": "a100"}})
    assert field.startswith("resources.selector")
    assert "is not a valid node label" in message


def test_attempt_gets_a_spec_of_one_size() -> None:
    elastic = spec({"max_workers": 4})
    one = elastic.at(2)
    assert one.model_dump(mode="json")["resources"] == {"workers": 2, "device": "auto"} | {
        k: v
        for k, v in elastic.model_dump(mode="json")["resources"].items()
        if k not in ("min_workers", "max_workers")
    }
    assert one.possible_workers == (2,)
    with pytest.raises(ValueError, match="cannot have 3"):
        elastic.at(3)
    with pytest.raises(ValueError, match="cannot have 8"):
        elastic.at(8)


def test_override_of_workers_replaces_range() -> None:
    text = "{name: x, task: {name: digits}, resources: {min_workers: 2, max_workers: 4}}"
    assert parse_spec(text, "yaml", {"resources.workers": "1"}).possible_workers == (1,)
    fixed = "{name: x, task: {name: digits}, resources: {workers: 4}}"
    assert parse_spec(fixed, "yaml", {"resources.max_workers": "2"}).possible_workers == (1, 2)
    with pytest.raises(SpecError, match="exclude each other"):
        parse_spec(text, "yaml", {"resources.workers": "1", "resources.max_workers": "2"})


@given(
    least=st.integers(1, 12),
    more=st.integers(0, 12),
    batch=st.integers(1, 48),
    rounds=st.integers(1, 3),
    parallelism=st.sampled_from(
        [
            {"strategy": "ddp"},
            {"strategy": "fsdp"},
            {"strategy": "tensor"},
            {"strategy": "pipeline"},
            {"strategy": "parameter_server", "servers": 2},
        ]
    ),
)
def test_elastic_sizes_are_valid_fixed_sizes(
    least: int, more: int, batch: int, rounds: int, parallelism: dict[str, Any]
) -> None:
    rest = {
        "parallelism": parallelism,
        "training": {"global_batch_size": batch, "gradient_accumulation": rounds},
    }
    fits = []
    for workers in range(least, least + more + 1):
        try:
            spec({"workers": workers}, **rest)
        except SpecError:
            continue
        fits.append(workers)
    asked = {"min_workers": least, "max_workers": least + more}
    if not fits:
        problem(asked, **rest)
        return
    found = spec(asked, **rest)
    assert found.possible_workers == tuple(fits)
    assert JobSpec.model_validate(found.model_dump(mode="json")) == found
