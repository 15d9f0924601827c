"""Installs what a Make target needs, once: Python packages, the dashboard, a browser for tests.

Runs on the system's Python with the standard library alone, and on an old Python far enough to say
that it is too old. What is done is noted in stamps, so that the next call takes no time.

    python3 scripts/setup.py run [--port 8000]     .[train] and the built dashboard
    python3 scripts/setup.py test                  .[train,dev], the built dashboard and Chromium
    python3 scripts/setup.py lint                  .[train,dev] and the dashboard's packages
    python3 scripts/setup.py build                 .[train,dev] and the built dashboard
    python3 scripts/setup.py integrations          .[dev,integrations] in an environment apart, and
                                                   MLflow 2 in another
"""

import argparse
import glob
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 14)
OLDEST_NODE = (20, 19)
# Said before the package itself, so that pip takes the build that its configuration prefers.
TORCH = "torch>=2.11,<2.14"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
# What foreign clients and servers bring along must not change what everything else runs with.
INTEGRATIONS_VENV = os.path.join(ROOT, ".venv-integrations")
# Clients of the last major version of MLflow are used for years.
MLFLOW2_VENV = os.path.join(ROOT, ".venv-mlflow2")
MLFLOW2 = "mlflow-skinny>=2.16,<3"
DASHBOARD = os.path.join(ROOT, "dashboard")
STATIC = os.path.join(ROOT, "api", "static")
# Both go with the packages: a new installation builds anew.
NPM_STAMP = os.path.join(DASHBOARD, "node_modules", ".installed")
BUILD_STAMP = os.path.join(DASHBOARD, "node_modules", ".built")
# Tests of packages, the compiler of PyTorch, pip, and what is there as machine code or for others.
NEVER_IMPORTED = (
    r"/site-packages/((.*/)?(tests|testing|_inductor|pip)|mypyc?|networkx|setuptools|torchgen)/"
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main():
    parser = argparse.ArgumentParser(description="Installs what a Make target needs.")
    parser.add_argument("target", choices=["run", "test", "lint", "build", "integrations"])
    parser.add_argument("--port", default=None, help="a port that must be free")
    options = parser.parse_args()
    use_new_enough_python()
    os.chdir(ROOT)
    if options.port is not None:
        check_port(options.port)
    if options.target == "integrations":
        # Without torchvision: Lightning imports one that is there, and some do not fit torch.
        install_python("dev,integrations", INTEGRATIONS_VENV)
        install_mlflow2()
        return
    extras = "train" if options.target == "run" else "train,dev"
    needs_page = options.target != "lint"
    check_programs(extras, needs_page)
    # Each uses one processor, and pip takes about as long as all the rest.
    with ThreadPoolExecutor() as pool:
        packages = pool.submit(install_python, extras)
        page = pool.submit(install_page, needs_page)
        if options.target == "test":
            install_browser()
    packages.result()
    page.result()


def use_new_enough_python():
    """Go on in this Python, or in a newer one that is installed beside it."""
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return
    for minor in range(NEWEST_PYTHON[1], OLDEST_PYTHON[1] - 1, -1):
        other = shutil.which(f"python3.{minor}")
        if other:
            os.execv(other, [other, *sys.argv])
    fail(
        f"needs Python {dotted(OLDEST_PYTHON)} or newer, and {sys.executable} is "
        f"{dotted(sys.version_info[:2])}; PYTHON=/path/to/python3.12 names another"
    )


def check_port(text):
    """Say at once, and not after minutes, that the port is taken."""
    port = int(text) if text.isdigit() else -1
    if not 0 <= port <= 65535:
        fail(f"PORT is a number from 0 to 65535, not {text!r}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            fail(f"port {port} is not free ({error.strerror}); take another with PORT=...")


def check_programs(extras, needs_page):
    """Complain about what is missing before minutes are spent on what is not."""
    page_is_there = dashboard_is_installed() and (not needs_page or dashboard_is_built())
    if python_is_installed(extras) and page_is_there:
        return
    wanted = f"Node.js {dotted(OLDEST_NODE)} or newer"
    require("git", "git")
    require("node", wanted)
    require("npm", "npm")
    asked = subprocess.run(["node", "--version"], stdout=subprocess.PIPE, text=True)
    output = asked.stdout.strip()
    found = re.match(r"v(\d+)\.(\d+)", output)
    if not found or tuple(map(int, found.groups())) < OLDEST_NODE:
        fail(f"needs {wanted}, and `node --version` says {output or 'nothing'}")


def require(program, name):
    if shutil.which(program) is None:
        fail(f"needs {name}: there is no `{program}` on the PATH")


def install_python(extras, venv=VENV):
    """Make a virtual environment and install the package into it, if that was not done yet."""
    if python_is_installed(extras, venv):
        return
    pip = make_venv(venv)
    step(f"Installing Trainhall with pip ({extras}); the first time this downloads PyTorch")
    # pip would compile on one processor, for a minute.
    pip.append("--no-compile")
    run([*pip, TORCH, "-e", f".[{extras}]"], "pip could not install Trainhall")
    # Templates among the files are not valid Python: what cannot be compiled is left. Python
    # compiles the rest when it is imported; two fifths of all lines, these never are.
    python = os.path.join(venv, "bin", "python")
    compile_all = [python, "-m", "compileall", "-qq", "-j", "0", "-x", NEVER_IMPORTED]
    compile_all.append(os.path.join(venv, "lib"))
    subprocess.run(compile_all, stdout=2, stdin=subprocess.DEVNULL)
    write_stamp(python_stamp(extras, venv), python_digest())


def make_venv(venv):
    """Make a virtual environment if there is none; return the command that installs into it."""
    python = os.path.join(venv, "bin", "python")
    # Python's own tool makes pip last: without it, an environment was left half made.
    if not os.path.exists(os.path.join(venv, "bin", "pip")):
        step(f"Making a virtual environment in {os.path.basename(venv)}")
        make = [sys.executable, "-m", "venv", "--clear", venv]
        if subprocess.run(make, stdout=2).returncode != 0:
            shutil.rmtree(venv, ignore_errors=True)
            fail(
                f"`{sys.executable} -m venv` failed; "
                "on Debian and Ubuntu it needs the package python3-venv"
            )
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check"]
    # Minutes of silence look like a fault; a log has no use for the progress of downloads.
    pip.append("--progress-bar=on" if sys.stderr.isatty() else "--quiet")
    return pip


def install_mlflow2():
    stamp = os.path.join(MLFLOW2_VENV, ".installed")
    if read_stamp(stamp) == MLFLOW2:
        return
    pip = make_venv(MLFLOW2_VENV)
    step("Installing MLflow 2 with pip")
    run([*pip, MLFLOW2], "pip could not install MLflow 2")
    write_stamp(stamp, MLFLOW2)


def python_is_installed(extras, venv=VENV):
    # What installs the tools for development installs what training needs as well.
    wanted = {extras, "train,dev"} if venv == VENV else {extras}
    return any(read_stamp(python_stamp(e, venv)) == python_digest() for e in wanted)


def python_digest():
    return digest([os.path.join(ROOT, "pyproject.toml")])


def python_stamp(extras, venv):
    return os.path.join(venv, ".installed-" + extras.replace(",", "-"))


def install_page(build):
    install_dashboard()
    if build:
        build_dashboard()


def install_dashboard():
    if dashboard_is_installed():
        return
    step("Installing the dashboard's packages with npm")
    run(
        ["npm", "ci", "--loglevel=error", "--no-audit", "--no-fund"],
        "npm could not install the dashboard's packages",
        DASHBOARD,
    )
    write_stamp(NPM_STAMP, npm_digest())


def dashboard_is_installed():
    return read_stamp(NPM_STAMP) == npm_digest()


def npm_digest():
    return digest([os.path.join(DASHBOARD, "package-lock.json")])


def build_dashboard():
    if dashboard_is_built():
        return
    step("Building the dashboard")
    run(
        ["npm", "run", "--silent", "build", "--", "--logLevel", "warn"],
        "the dashboard did not build",
        DASHBOARD,
    )
    write_stamp(BUILD_STAMP, digest(dashboard_sources()))


def dashboard_is_built():
    page = os.path.join(STATIC, "index.html")
    return os.path.exists(page) and read_stamp(BUILD_STAMP) == digest(dashboard_sources())


def dashboard_sources():
    """Every file that the built dashboard depends on."""
    found = [p for p in glob.glob(os.path.join(DASHBOARD, "*")) if os.path.isfile(p)]
    for folder in ("src", "public"):
        for parent, _, names in os.walk(os.path.join(DASHBOARD, folder)):
            found += [os.path.join(parent, name) for name in names]
    return sorted(found)


def install_browser():
    """Chromium for the browser tests, where this may be done; else they are skipped, loudly."""
    if any(shutil.which(name) for name in BROWSERS):
        return
    apt = shutil.which("apt-get")
    if apt and os.geteuid() == 0:
        step("Installing Chromium with apt-get for the browser tests")
        install = [apt, "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        if quietly(install) or (quietly([apt, "update", "-qq"]) and quietly(install)):
            return
    step("NO CHROMIUM: the browser tests will be SKIPPED. Install it to run them.")


def quietly(command):
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment
    )
    return done.returncode == 0


def digest(paths):
    """One hash of files' names and contents."""
    total = hashlib.sha256()
    for path in paths:
        name = os.path.relpath(path, ROOT)
        total.update(name.encode() + b"\0")
        try:
            with open(path, "rb") as file:
                total.update(hashlib.sha256(file.read()).digest())
        except FileNotFoundError:
            fail(f"{name} is missing: this is not a whole checkout")
    return total.hexdigest()


def read_stamp(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def write_stamp(path, text):
    with open(path, "w") as file:
        file.write(text)


def run(command, complaint, folder=ROOT):
    """Run a step; its own output explains a failure, and one line says what failed."""
    if subprocess.run(command, cwd=folder, stdout=2, stdin=subprocess.DEVNULL).returncode != 0:
        fail(f"{complaint}; the lines above say why")


def step(message):
    sys.stderr.write(f"==> {message}\n")
    sys.stderr.flush()


def dotted(version):
    return ".".join(map(str, version))


def fail(message):
    sys.exit(f"trainhall: {message}")


if __name__ == "__main__":
    main()
