"""Heavy modules that only some coordinators need, and only later than at their start."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "numpy": "metrics, ledgers and analyses",
    "alembic": "databases of earlier versions",
    "psycopg": "Postgres",
    "httpx": "fetching certificates",
    "httpcore": "alerts to webhooks",
    "smtplib": "alerts by mail",
    "authlib": "OpenID",
    "httpx2": "OpenID",
    "joserfc": "OpenID",
    "pwdlib": "passwords",
    "cryptography": "self-signed certificates",
    "optuna": "importance of an experiment's fields",
    "torch": "ranks",
    "yaml": "specs in YAML",
    "trainhall.cluster.agent": "agents",
    "trainhall.cluster.experiments.analyses": "experiments",
    "trainhall.cluster.simulator": "mock mode",
    "trainhall.distributed": "scaling experiments, ranks",
}
"""Modules, and what needs them."""

_START = """
import asyncio, json, sys
from pathlib import Path
from trainhall.api.app import create_app
from trainhall.api.settings import Settings

async def start():
    app = create_app(Settings(data_dir=Path(sys.argv[1])))
    async with app.router.lifespan_context(app):
        print(json.dumps([*sys.modules]))

asyncio.run(start())
"""


@pytest.mark.processes
def test_new_coordinator_starts_without_heavy_modules(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _START, str(tmp_path)], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert {name: use for name, use in HEAVY.items() if name in loaded} == {}
