"""`trainhall server` with times that suit a scenario: a node is given up after seconds.

python -P coordinator.py '{"lost_after_seconds": 4}' --port 8000 --data-dir FOLDER
"""

import argparse
import json
import sys
from pathlib import Path
from unittest.mock import patch

from trainhall.api import server
from trainhall.api.settings import Settings
from trainhall.cluster.options import ClusterOptions


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("options", type=json.loads)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--database-url")
    given = parser.parse_args()
    # All else is as in production: the same socket, settings, logs and end.
    options = ClusterOptions(**given.options)
    with patch.object(Settings, "cluster_options", options):
        return server.serve(
            host=given.host,
            port=given.port,
            data_dir=given.data_dir,
            database_url=given.database_url,
        )


if __name__ == "__main__":
    sys.exit(main())
