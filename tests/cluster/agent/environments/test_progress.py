"""Words on the progress of an environment, from the lines that uv prints."""

from trainhall.cluster.agent.environments.progress import PreparationProgress


def test_downloads_and_builds_are_named_until_done() -> None:
    said: list[str] = []
    progress = PreparationProgress(said.append)
    progress.begin("installing 2 packages")
    progress.take_line("Downloading torch (731.9MiB)")
    assert said[-1] == "installing 2 packages: downloading torch (731.9MiB)"
    progress.take_line("   Building alpha==1.0")
    assert said[-1].endswith(": downloading torch (731.9MiB); building alpha==1.0")
    progress.take_line(" Downloaded torch")
    progress.take_line("      Built alpha==1.0")
    progress.take_line("Installed 2 packages in 8ms")
    assert said[-1] == "installing 2 packages"


def test_many_downloads_are_counted() -> None:
    said: list[str] = []
    progress = PreparationProgress(said.append)
    progress.begin("installing 5 packages")
    for name in "abcde":
        progress.take_line(f"Downloading {name} (2.0MiB)")
    assert said[-1].endswith(": downloading a (2.0MiB), b (2.0MiB), c (2.0MiB) and 2 more")
    progress.begin("next")
    assert said[-1] == "next"
