"""What `trainhall verify` prints of its results."""

from trainhall.cli.verify.command import _page
from trainhall.cli.verify.runs import Result


def test_verify_groups_unclear_results_by_reason() -> None:
    def unclear(strategy: str, number: int, reason: str) -> list[Result]:
        meshes = [f"data {i}" for i in range(1, number + 1)]
        return [Result(strategy, mesh, {}, "unclear", reason) for mesh in meshes]

    page = _page([*unclear("fsdp", 7, "it parts at step 5"), *unclear("tensor", 3, "at step 2")])
    assert (
        "Unclear: fsdp, data 1; fsdp, data 2; fsdp, data 3; and 4 more\n      it parts at" in page
    )
    assert "Unclear: tensor, data 1; tensor, data 2; tensor, data 3\n      at step 2" in page
    assert page.count(" unclear ") == 10
