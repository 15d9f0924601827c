"""A folder of this computer, or a zip of one, becomes the code of a job, in a browser."""

import re
import zipfile
from pathlib import Path

from playwright.sync_api import Locator, Page, expect
from support.cluster.cluster import Cluster

NAME = "é" * 60 + ".py"
SCRIPT = f"""
import importlib, sys
print(importlib.import_module("{NAME[:-3]}").VALUE, sys.argv[1])
"""
SPEC = "name: sent\nscript:\n  path: train.py\n  args: ['7']\n"


FILES = {
    "train.py": SCRIPT, NAME: "VALUE = 'sent'\n", ".env": "KEY=very-secret\n", ".git/HEAD": "ref",
}  # fmt: skip


def test_folder_is_sent_and_runs(page: Page, cluster: Cluster, tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    (lab / ".git").mkdir(parents=True)
    for name, text in FILES.items():
        (lab / name).write_text(text)
    code = _open_form(page)
    code.get_by_label("Folder of the code").set_input_files(lab)
    expect(code).to_contain_text("lab: 2 files")
    _submit(page, cluster, code)


def test_zip_is_sent_and_runs(page: Page, cluster: Cluster, tmp_path: Path) -> None:
    packed = tmp_path / "lab.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as to:
        for name, text in FILES.items():
            to.writestr(f"lab/{name}", text)
    cut = tmp_path / "cut.zip"
    cut.write_bytes(packed.read_bytes()[:-40])
    code = _open_form(page)
    code.get_by_label("Zip of the code").set_input_files(cut)
    expect(code.get_by_role("alert")).to_contain_text("cut.zip is damaged, or is no zip")
    expect(code.get_by_role("button", name="Upload")).to_have_count(0)
    code.get_by_label("Zip of the code").set_input_files(packed)
    expect(code).to_contain_text("lab.zip (its folder lab): 2 files")
    expect(code.get_by_role("alert")).to_have_count(0)
    _submit(page, cluster, code)


def _open_form(page: Page) -> Locator:
    page.goto("/new")
    page.get_by_role("textbox", name="Job spec in YAML").press("Control+a")
    page.keyboard.insert_text(SPEC)
    return page.get_by_role("region", name="Code")


def _submit(page: Page, cluster: Cluster, code: Locator) -> None:
    expect(code).to_contain_text("and .env, which may hold secrets")
    code.get_by_role("button", name="Upload").click()
    expect(code).to_contain_text("Uploaded.")
    editor = page.get_by_role("textbox", name="Job spec in YAML")
    expect(editor).to_contain_text(re.compile(r"code: [0-9a-f]{64}"))
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/jobs/[0-9a-f]+"))
    job = page.url.rstrip("/").rpartition("/")[2].partition("?")[0]
    cluster.wait_for(job, "completed")
    assert cluster.log_text(job, 0) == "sent 7"
    files = cluster.get(f"/training/jobs/{job}/code")["items"]
    assert [each["path"] for each in files] == ["train.py", NAME]
