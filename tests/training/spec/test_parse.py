"""Whatever bytes arrive, the answer is a job spec or advice by field."""

import contextlib
import json
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainhall.training.spec import MAX_SPEC_BYTES, JobSpec, SpecError, parse_spec
from trainhall.training.spec.parse import load_document, validate_spec
from trainhall.training.spec.recovery import MetricMode, MetricSpec

EXAMPLES = Path(__file__).parents[3] / "examples"
FORMATS = st.sampled_from(["json", "yaml"])

MINIMAL: dict[str, Any] = {"name": "x", "task": {"name": "digits"}}
KEYS = ["name", "task", "script", "params", "resources", "workers", "training", "steps", "path",
        "learning_rate_schedule", "kind", "checkpoint", "every_seconds", "env"]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["digits", "synthetic", "auto", "step", "sgd", "bf16", "/tmp/x", "\udc80"])
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


def accept_or_advise(raw: bytes | str, format_: Any) -> None:
    with contextlib.suppress(SpecError):
        assert isinstance(parse_spec(raw, format_), JobSpec)
        return
    with pytest.raises(SpecError) as caught:
        parse_spec(raw, format_)
    assert caught.value.problems
    for problem in caught.value.problems:
        assert problem.message
        assert "Input should" not in problem.message
        # What is shown must be printable anywhere.
        f"{problem.field}{problem.message}{problem.value}".encode()


@given(st.binary(max_size=300), FORMATS)
def test_no_bytes_raise_anything_but_advice(raw: bytes, format_: str) -> None:
    accept_or_advise(raw, format_)


@given(st.text(alphabet=" \n-:,{}[]&*!|>'\"#?%@`\\\0xnametask0.~eE+", max_size=80), FORMATS)
def test_no_syntax_raises_anything_but_advice(text: str, format_: str) -> None:
    accept_or_advise(text, format_)


@given(TREES)
def test_no_document_raises_anything_but_advice(tree: Any) -> None:
    accept_or_advise(json.dumps(tree), "json")
    accept_or_advise(json.dumps({**MINIMAL, "training": tree}), "json")
    accept_or_advise(json.dumps({"name": "x", "task": tree}), "json")


@given(TREES)
def test_no_plain_yaml_document_raises_anything_but_advice(tree: Any) -> None:
    accept_or_advise(
        yaml.safe_dump({**MINIMAL, "task": {"name": "digits", "params": tree}}), "yaml"
    )


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_override_raises_anything_but_advice(field: str, value: str) -> None:
    with contextlib.suppress(SpecError):
        parse_spec(json.dumps(MINIMAL), "json", {field: value})


def synchronised(strategy: str = "ddp", **options: Any) -> dict[str, Any]:
    return {
        "parallelism": {"strategy": strategy, "gradient_sync": options},
        "resources": {"workers": 2},
    }


def problems(document: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        validate_spec(document)
    return {p.field: p.message for p in caught.value.problems}


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"traning": {}}, "traning", "did you mean 'training'?"),
        ({"task": {"name": "digit"}}, "task.name", "did you mean digits?"),
        (
            {"task": {"name": "digits", "params": {"hiden": 1}}},
            "task.params.hiden",
            "did you mean 'hidden'?",
        ),
        (
            {"task": {"name": "digits", "params": {"dropout": 2}}},
            "task.params.dropout",
            "less than 1",
        ),
        ({"task": None}, "task", "exactly one of task, script and interactive"),
        ({"script": {"path": "/a.py"}}, "script", "give one"),
        ({"script": {"path": "a.py"}}, "script.path", "must be an absolute path on every node"),
        ({"training": {"steps": 1, "epochs": 1}}, "training.epochs", "give one"),
        ({"training": {"steps": 0}}, "training.steps", "must be at least 1"),
        ({"training": {"steps": "many"}}, "training.steps", "must be an integer"),
        ({"training": {"steps": 1.5}}, "training.steps", "must be an integer"),
        ({"training": {"steps": [1]}}, "training.steps", "must be an integer"),
        ({"training": {"pause_at": [5, 5]}}, "training.pause_at", "must count up, each step once"),
        ({"training": {"pause_at": [0]}}, "training.pause_at.0", "must be at least 1"),
        (
            {"training": {"steps": 9, "pause_at": [3, 9]}},
            "training.pause_at",
            "must be below training.steps (9), where the job ends",
        ),
        ({"training": {"learning_rate": "x"}}, "training.learning_rate", "must be a number"),
        (
            {"training": {"precision": "BF-16"}},
            "training.precision",
            "must be one of fp32, bf16, fp16; did you mean bf16?",
        ),
        (
            {"resources": {"device": "gpu"}},
            "resources.device",
            "must be one of auto, cpu, cuda",
        ),
        ({"training": 3}, "training", "must be an object"),
        ({"name": 7}, "name", "must be a string; put it in quotes"),
        ({"name": None}, "name", "is empty; it must be a string"),
        ({"name": ""}, "name", "must not be empty"),
        ({"name": "x" * 129}, "name", "may have at most 128 characters"),
        ({"task": {}}, "task.name", "is missing"),
        (
            {"task": {"name": "digits", "params": {"hidden": 7}}},
            "task.params.hidden",
            "must be a list",
        ),
        (
            {"script": {"path": "/a.py", "env": {"1A": "x"}}, "task": None},
            "script.env.1A.[key]",
            "must be a letter or _",
        ),
        ({"training": {"learning_rate": float("nan")}}, "training.learning_rate", "finite"),
        (
            {"resources": {"workers": 3}},
            "training.global_batch_size",
            "not divisible by 3 (3 workers); the nearest valid size is 63",
        ),
        (
            {"resources": {"workers": 40}},
            "training.global_batch_size",
            "not divisible by 40 (40 workers); the nearest valid size is 80",
        ),
        ({"parallelism": {"data": 2}}, "parallelism.data", "number of workers"),
        ({"parallelism": {"shard": 2}}, "parallelism.shard", "strategy ddp has no degree `shard`"),
        (
            {"parallelism": {"strategy": "fsdp", "data": 2}},
            "parallelism.data",
            "the number of workers, 1, is not divisible by data 2",
        ),
        (
            {"parallelism": {"strategy": "tensor"}, "resources": {"workers": 3}},
            "parallelism.tensor",
            "the 256 hidden units of 0 are not divisible by tensor 3; choose a divisor of 256",
        ),
        (
            {
                "task": {"name": "mnist", "params": {"root": "/data"}},
                "parallelism": {"strategy": "tensor"},
                "resources": {"workers": 2},
            },
            "parallelism.tensor",
            "declares no layers that tensor parallelism can split",
        ),
        (
            {
                "parallelism": {"strategy": "tensor", "sequence_parallel": True},
                "resources": {"workers": 2},
            },
            "parallelism.sequence_parallel",
            "declares no sequences",
        ),
        (
            {"parallelism": {"sequence_parallel": True}},
            "parallelism.sequence_parallel",
            "needs tensor above 1",
        ),
        (
            {
                "task": {"name": "language_model", "params": {"size": "small", "context": 9}},
                "parallelism": {"strategy": "tensor", "sequence_parallel": True},
                "resources": {"workers": 2},
            },
            "parallelism.sequence_parallel",
            "9 positions are not divisible by tensor 2",
        ),
        (
            {
                "task": {"name": "language_model", "params": {"size": "small"}},
                "parallelism": {"strategy": "fsdp", "tensor": 4},
                "resources": {"workers": 4},
            },
            "parallelism.tensor",
            "the 6 heads of blocks.0.attention.query_key_value are not divisible by tensor 4",
        ),
        (
            {"parallelism": {"strategy": "pipeline"}, "resources": {"workers": 4}},
            "parallelism.pipeline",
            "2 layers, fewer than the 4 stages of pipeline 4; choose",
        ),
        (
            {
                "parallelism": {"strategy": "pipeline", "schedule": "zbv"},
                "resources": {"workers": 2},
            },
            "parallelism.pipeline",
            "fewer than the 4 stages of pipeline 2 × 2 stages per rank",
        ),
        (
            {
                "parallelism": {"strategy": "pipeline", "microbatches": 1},
                "resources": {"workers": 2},
            },
            "parallelism.microbatches",
            "1 are fewer than the 2 ranks of the pipeline",
        ),
        (
            {"parallelism": {"strategy": "pipeline"}},
            "parallelism.pipeline",
            "needs at least 2 stages; use more workers, or ddp",
        ),
        (
            {"parallelism": {"strategy": "pipeline", "tensor": 2}, "resources": {"workers": 2}},
            "parallelism.pipeline",
            "2 workers / tensor 2 leave pipeline 1, which does not split the model; use more "
            "workers, a smaller tensor, or ddp",
        ),
        (
            {
                "parallelism": {"strategy": "pipeline", "tensor": 2, "data": 2},
                "resources": {"workers": 4},
            },
            "parallelism.pipeline",
            "4 workers / (data 2 × tensor 2) leave pipeline 1, which does not split the model; use "
            "more workers, a smaller data or tensor, or ddp",
        ),
        (
            {
                "parallelism": {"strategy": "pipeline", "tensor": 2, "pipeline": 1},
                "resources": {"workers": 2},
            },
            "parallelism.pipeline",
            "needs at least 2 stages; give a larger `pipeline`, or choose ddp",
        ),
        (
            {
                "parallelism": {"strategy": "pipeline", "microbatches": 3},
                "resources": {"workers": 2},
            },
            "training.global_batch_size",
            "not divisible by 3 (3 micro-batches); the nearest valid size is 63",
        ),
        (
            {"parallelism": {"strategy": "model", "microbatches": 2}, "resources": {"workers": 2}},
            "parallelism.microbatches",
            "is for strategy pipeline: model does not split a batch",
        ),
        (
            {
                "parallelism": {"strategy": "parameter_server", "servers": 2},
                "resources": {"workers": 2},
            },
            "parallelism.servers",
            "with 2 servers, 0 of 2 workers are left to train; give at most 1",
        ),
        (
            {"parallelism": {"servers": 1}, "resources": {"workers": 2}},
            "parallelism.servers",
            "strategy ddp has no servers",
        ),
        (
            {"parallelism": {"gradient_sync": {"algorithm": "rings"}}},
            "parallelism.gradient_sync.algorithm",
            "native",
        ),
        (synchronised(ratio=0), "parallelism.gradient_sync.ratio", "must be more than 0"),
        (synchronised(ratio=1.5), "parallelism.gradient_sync.ratio", "must be at most 1"),
        (
            synchronised(compression="fp16", ratio=0.1),
            "parallelism.gradient_sync.ratio",
            "is for compression topk and powersgd",
        ),
        (synchronised(bucket_mb=0), "parallelism.gradient_sync.bucket_mb", "must be more than 0"),
        (
            synchronised(compression="topk") | {"training": {"precision": "fp16"}},
            "parallelism.gradient_sync.compression",
            "with precision fp16 every step may have another loss scale",
        ),
        (
            synchronised(algorithm="tree", compression="topk"),
            "parallelism.gradient_sync.algorithm",
            "they are gathered, which only native and ring can do",
        ),
        (
            synchronised("fsdp", algorithm="ring"),
            "parallelism.gradient_sync.algorithm",
            "is for strategy ddp; fsdp has its own collectives",
        ),
        (
            synchronised("parameter_server", compression="topk"),
            "parallelism.gradient_sync.compression",
            "set parallelism.strategy to ddp",
        ),
        (
            {**synchronised(algorithm="ring"), "training": {"reproducible": True}},
            "parallelism.gradient_sync.algorithm",
            "its order of additions depends on the number of ranks",
        ),
        (
            {**synchronised(algorithm="ring"), "script": {"path": "/a.py"}, "task": None},
            "parallelism.gradient_sync.algorithm",
            "a script combines its own gradients",
        ),
        (
            {
                "parallelism": {"servers": 3, "gradient_sync": {"algorithm": "parameter_server"}},
                "resources": {"workers": 2},
            },
            "parallelism.servers",
            "3 servers are more than the 2 workers; give at most 2",
        ),
        (
            {"parallelism": {"strategy": "fspd"}},
            "parallelism.strategy",
            "did you mean fsdp?",
        ),
        (
            {"script": {"path": "/a.py"}, "task": None, "parallelism": {"strategy": "fsdp"}},
            "parallelism.strategy",
            "a script distributes its own model",
        ),
        (
            {"training": {"reproducible": True}, "resources": {"workers": 6}},
            "training.logical_shards",
            "4 logical shards are fewer than the 6 workers; give at least 6",
        ),
        (
            {
                "training": {"reproducible": True, "logical_shards": 3},
                "parallelism": {"strategy": "fsdp"},
            },
            "training.reproducible",
            "needs strategy ddp",
        ),
        (
            {"training": {"reproducible": True}, "script": {"path": "/a.py"}, "task": None},
            "training.reproducible",
            "is for tasks",
        ),
        (
            {
                "training": {
                    "reproducible": True,
                    "logical_shards": 6,
                    "gradient_accumulation": 2,
                },
                "resources": {"workers": 3},
            },
            "training.global_batch_size",
            "batch size 64 is not divisible by 12 (6 logical shards × 2 accumulation steps); the "
            "nearest valid size is 60",
        ),
        (
            {"training": {"reproducible": True, "compile": True}},
            "training.compile",
            "results would not be bit-identical",
        ),
        (
            {"training": {"reproducible": True, "logical_shards": 0}},
            "training.logical_shards",
            "at least 1",
        ),
        ({"checkpoint": {"path": "relative"}}, "checkpoint.path", "absolute"),
        (
            {"checkpoint": {"every_steps": 1, "every_seconds": 1}},
            "checkpoint.every_seconds",
            "give one",
        ),
        (
            {"training": {"learning_rate_schedule": {"kind": "step"}}},
            "training.learning_rate_schedule.decay_every",
            "give a number of steps",
        ),
        ({"name": "a\nb"}, "name", "U+000A"),
        ({"name": "\u00a0"}, "name", "a visible character"),
    ],
)
def test_a_refusal_names_the_field_and_the_remedy(
    change: dict[str, Any], field: str, words: str
) -> None:
    found = problems({**MINIMAL, **change})
    assert words in found[field]


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("train.py", "/lab/specs/train.py"),
        ("./src/../train.py", "/lab/specs/train.py"),
        ("../train.py", "/lab/train.py"),
        ("/srv/train.py", "/srv/train.py"),
    ],
)
def test_relative_script_is_resolved_from_spec_folder(path: str, resolved: str) -> None:
    text = json.dumps({"name": "x", "script": {"path": path}})
    spec = parse_spec(text, "json", folder=Path("/lab/specs"))
    assert spec.script is not None
    assert spec.script.path == resolved


@pytest.mark.parametrize("script", ["text", {"path": 7}, {"path": ""}, {"path": "a\0b"}, {}])
def test_a_folder_hides_no_wrong_script(script: Any) -> None:
    text = json.dumps({"name": "x", "script": script})
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "json", folder=Path("/lab/specs"))
    assert caught.value.problems[0].field in ("script", "script.path")


def test_every_wrong_field_is_named_at_once() -> None:
    found = problems({"name": "", "task": {"name": "digits"}, "training": {"steps": -1}, "x": 1})
    assert set(found) == {"name", "training.steps", "x"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x [1]\nb: *x", "line 2, column 4: aliases are not supported"),
        ("a: 1\na: 2", "key 'a' is given twice"),
        ("[" * 40, "deeper than 32 levels"),
        ("a: !!python/object/apply:os.abort []", "not valid YAML: line 1"),
        ("a: 0x" + "f" * 9000, "more than 64 bits"),
        ("a: \0", "NUL byte at character 3"),
        ("a:\n\tb: 1", "line 2: tabs are not allowed for indentation; use spaces"),
        ("a: {b: 1\nc: 2\nd: 3", "line 1, column 4: this '{' is not closed"),
        ("a: [1, 2\nb: 3", "line 1, column 4: this '[' is not closed"),
        ("x: {y: [1, 99999999999999999999]}", "x.y.1: the number needs more than 64 bits"),
        (
            "x: 2026-01-31",
            "x: is of the type date; write a string (in quotes), a number, a boolean",
        ),
        ("x: !!binary /w==", "x: is of the type bytes; write"),
        ("x: !!set {a, b}", "x: is of the type set; write"),
        ("x: [.inf]", "x.0: must be a finite number"),
        ("x: {1: a}", "x: the key 1 must be a string; put it in quotes"),
        ("- 1", "must be an object with keys; this one is a list"),
        ("", "this one is empty"),
        ("x" * (MAX_SPEC_BYTES + 1), f"the limit is {MAX_SPEC_BYTES:,}"),
        ("x: [" + "1," * 10_000 + "]", "more than 10,000 keys and values"),
    ],
)
def test_dangerous_yaml_is_refused_by_place(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=r".") as caught:
        parse_spec(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "key 'a' is given twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": 1e999}', "a: must be a finite number"),
        ('{"a": "\\ud800"}', "half a surrogate pair"),
        ("[" * 100_000, "deeper than 32 levels"),
        ("{", "not valid JSON"),
        ("[" + "1," * 10_000 + "1]", "more than 10,000 keys and values"),
    ],
)
def test_dangerous_json_is_refused(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "json")
    assert words in str(caught.value)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_only_the_first_problems_of_many_are_explained(form: Literal["json", "yaml"]) -> None:
    document = {"name": "x", "task": {"name": "digits"}} | {f"key{i}": 1 for i in range(4_000)}
    with pytest.raises(SpecError) as caught:
        parse_spec(json.dumps(document), form)
    assert len(caught.value.problems) == 21
    assert all("unknown key" in problem.message for problem in caught.value.problems[:20])
    assert caught.value.problems[-1].message == "and 3,980 more"


def test_overrides_are_yaml_values() -> None:
    spec = parse_spec(json.dumps(MINIMAL), "json", {"training.steps": "20", "name": "other"})
    assert (spec.training.steps, spec.name) == (20, "other")


def test_name_has_plain_spaces() -> None:
    assert validate_spec({**MINIMAL, "name": "digits\u00a0large\u3000batch"}).name == (
        "digits large batch"
    )


def test_a_spec_survives_its_own_json() -> None:
    spec = parse_spec(json.dumps({**MINIMAL, "training": {"learning_rate": "1e-3"}}), "json")
    assert parse_spec(spec.model_dump_json(), "json") == spec


def test_a_script_has_no_sections_of_tasks() -> None:
    spec = parse_spec(json.dumps({"name": "mine", "script": {"path": "/train.py"}}), "json")
    document = spec.model_dump(mode="json")
    assert not {"task", "training", "parallelism"} & set(document)
    assert JobSpec.model_validate(document) == spec


def test_a_script_may_pause_by_itself() -> None:
    given = {"name": "mine", "script": {"path": "/train.py"}, "training": {"pause_at": [4, 8]}}
    document = parse_spec(json.dumps(given), "json").model_dump(mode="json")
    assert document["training"] == {"pause_at": [4, 8]}
    assert JobSpec.model_validate(document).training.pause_at == (4, 8)


def test_main_metric_has_name_and_goal() -> None:
    task = {"name": "a", "task": {"name": "digits"}}
    good = {**task, "metric": {"name": "val/f1", "goal": "max"}}
    assert parse_spec(json.dumps(good), "json").metric == MetricSpec(
        name="val/f1", goal=MetricMode.MAX
    )
    assert problems({**task, "metric": {"name": "val/f1"}}) == {"metric.goal": "is missing"}
    assert set(problems({**task, "metric": {"name": "", "goal": "up"}})) == {
        "metric.name",
        "metric.goal",
    }


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.name)
def test_the_examples_are_valid(path: Path) -> None:
    parse_spec(path.read_bytes(), folder=EXAMPLES)


def test_experiment_is_no_job() -> None:
    with pytest.raises(SpecError, match="create it with `trainhall experiment create`"):
        parse_spec("{name: a, kind: sweep, job: {}, space: {}}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4), ("[1e-7, 1E5, -2e3]", [1e-7, 1e5, -2e3]), (".5e2", 50.0), ("1.e3", 1e3),
        ("1.0e-07", 1e-7), ("e5", "e5"), ("1e", "1e"), ("1e5f", "1e5f"), ("'1e5'", "1e5"),
    ],
)  # fmt: skip
def test_exponents_are_numbers_in_yaml(text: str, value: Any) -> None:
    """As in YAML 1.2 and in JSON."""
    assert load_document(f"a: {text}", "yaml", "a job")["a"] == value
