#!/usr/bin/env bash
# Everything that needs a GPU, on one CUDA machine and without a network: the tests marked `gpu`, then
# the engine's speed beside loops written by hand. Options go to engine/gpu.py:
#
#   benchmarks/gpu.sh                       results are written to benchmarks/results/
#   benchmarks/gpu.sh --device cpu --tiny   does the command work? (no numbers worth keeping)
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ -z "${PYTHON:-}" ]]; then
  PYTHON=python3
  [[ -x .venv/bin/python ]] && PYTHON=.venv/bin/python
fi
# A machine that has the dependencies but not the package runs it from here.
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
"$PYTHON" -m pytest -q -m gpu tests/gpu
exec "$PYTHON" -m benchmarks.engine.gpu "$@"
