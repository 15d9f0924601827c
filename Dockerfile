# One image for the coordinator and for agents. Only agents need PyTorch:
#
#   docker build -t trainhall .                                        the coordinator
#   docker build -t trainhall-agent --build-arg TORCH=cpu .            an agent for hosts without GPUs
#   docker build -t trainhall-agent --build-arg TORCH=cuda .           an agent for NVIDIA GPUs
#
# PyTorch's default build computes on CPUs as well, but brings CUDA along. TORCH_CPU_INDEX names an index
# that has its smaller builds for CPUs, as PyTorch's page on installation tells:
#
#   docker build -t trainhall-agent --build-arg TORCH=cpu --build-arg TORCH_CPU_INDEX=https://... .
#
# PyTorch's own packages bring CUDA, cuDNN and NCCL, so the CUDA variant needs no CUDA base image:
# the host has the driver and the NVIDIA Container Toolkit, and runs it with `--gpus all`.

FROM node:22-slim AS dashboard
WORKDIR /src/dashboard
COPY dashboard/package.json dashboard/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY dashboard ./
RUN npm run build

FROM python:3.12-slim
ARG TORCH=none
ARG TORCH_CPU_INDEX=
# What the NVIDIA Container Toolkit hands in; without a GPU nobody reads it.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# PyTorch has its own layer: a change to Trainhall does not download it again.
RUN case "$TORCH" in \
      none) ;; \
      cpu) pip install --no-cache-dir "torch>=2.11,<2.14" torchvision \
             ${TORCH_CPU_INDEX:+--index-url "$TORCH_CPU_INDEX"} ;; \
      cuda) pip install --no-cache-dir "torch>=2.11,<2.14" torchvision ;; \
      *) echo "TORCH is none, cpu or cuda, not $TORCH" >&2; exit 2 ;; \
    esac
WORKDIR /src
COPY . .
COPY --from=dashboard /src/api/static api/static
RUN extras=; [ "$TORCH" = none ] || extras="[train]"; \
    pip install --no-cache-dir ".$extras" \
    && useradd --create-home trainhall \
    && install -d -o trainhall /var/lib/trainhall /var/lib/agent /var/lib/join
USER trainhall
WORKDIR /home/trainhall
ENV TRAINHALL_DATA_DIR=/var/lib/trainhall
VOLUME /var/lib/trainhall
ENTRYPOINT ["trainhall"]
CMD ["server"]
