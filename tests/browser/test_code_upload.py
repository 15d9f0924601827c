"""A folder of this computer becomes the code of a job, in a browser."""

import re
from pathlib import Path

from playwright.sync_api import Page, expect
from support.cluster.cluster import Cluster

NAME = "é" * 60 + ".py"
SCRIPT = f"""
import importlib, sys
print(importlib.import_module("{NAME[:-3]}").VALUE, sys.argv[1])
"""
SPEC = "name: sent\nscript:\n  path: train.py\n  args: ['7']\n"


def test_folder_is_sent_and_runs(page: Page, cluster: Cluster, tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    (lab / ".git").mkdir(parents=True)
    for name, text in (
        ("train.py", SCRIPT), (NAME, "VALUE = 'sent'\n"), (".env", "KEY=very-secret\n"),
        (".git/HEAD", "ref"),
    ):  # fmt: skip
        (lab / name).write_text(text)
    page.goto("/new")
    editor = page.get_by_role("textbox", name="Job spec in YAML")
    editor.press("Control+a")
    page.keyboard.insert_text(SPEC)
    code = page.get_by_role("region", name="Code")
    code.get_by_label("Folder of the code").set_input_files(lab)
    expect(code).to_contain_text("lab: 2 files")
    expect(code).to_contain_text("and .env, which may hold secrets")
    code.get_by_role("button", name="Upload").click()
    expect(code).to_contain_text("Uploaded.")
    expect(editor).to_contain_text(re.compile(r"code: [0-9a-f]{64}"))
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f]+"))
    job = page.url.rstrip("/").rpartition("/")[2].partition("?")[0]
    cluster.wait_for(job, "completed")
    assert cluster.log_text(job, 0) == "sent 7"
    files = cluster.get(f"/training/jobs/{job}/code")["items"]
    assert [each["path"] for each in files] == ["train.py", NAME]
