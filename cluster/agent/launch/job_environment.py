"""The environment of jobs: of the agent's own, what an allow-list names.

What else the agent was started with (its join token, keys of a cloud, ...) is none of a job's
business.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

PASSED = (
    # The user and the system
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM",
    "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "LD_LIBRARY_PATH",
    "LD_PRELOAD", "MALLOC_*",
    # Python
    "PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
    # Devices, threads and networks of ranks
    "CUDA_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "UCX_*", "FI_*", "CUBLAS_*", "CUDNN_*",
    "TORCH*", "PYTORCH_*", "TRITON_*", "OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*",
    "NUMEXPR_*",
    # Proxies and certificates
    "http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    # Where libraries keep their files; not HF_TOKEN
    "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_CACHE",
    # By which `trainhall up` and this agent find what they started
    "TRAINHALL_STARTED_BY", "TRAINHALL_RUNTIME_DIR",
)  # fmt: skip
"""Names of the variables that jobs get from their agent; `*` stands for any characters."""


def job_environment(base: Mapping[str, str], further: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of `base` that jobs get.

    Args:
        further: names beside `PASSED`, as of `--pass-env`.
    """
    allowed = (*PASSED, *further)
    return {k: v for k, v in base.items() if any(fnmatchcase(k, name) for name in allowed)}
