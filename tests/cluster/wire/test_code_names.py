"""Names of the files in a job's code."""

from trainhall.cluster.wire.code_names import near_name


def test_near_name_is_deeper_or_similar() -> None:
    names = frozenset({"lib/tool.py", "train.py", "data/model.py"})
    assert near_name(names, "tool.py") == "lib/tool.py"
    assert near_name(names, "trian.py") == "train.py"
    assert near_name(names, "other.txt") is None


def test_near_name_is_among_those_in_few_folders() -> None:
    deep = {f"a/b/c/trains_{i}.py" for i in range(20_000)}
    assert near_name(deep | {"train.py"}, "trains.py") == "train.py"
    assert near_name(deep | {f"x{i}" for i in range(500)}, "a/b/c/train_7.py") is None


def test_long_path_is_compared_with_no_name() -> None:
    long = "ab" * 100
    assert near_name(frozenset({f"{long}.py"}), f"{long}.pi") is None
    assert near_name(frozenset({f"{long}/x.py"}), f"b{long}/x.py") == f"{long}/x.py"
