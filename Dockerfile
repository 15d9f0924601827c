# One image for the coordinator and for agents; TRAIN=1 adds PyTorch, which only agents need.
#
#   docker build -t trainhall .
#   docker build -t trainhall-agent --build-arg TRAIN=1 .

FROM node:22-slim AS dashboard
WORKDIR /src/dashboard
COPY dashboard/package.json dashboard/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY dashboard ./
RUN npm run build

FROM python:3.12-slim
ARG TRAIN=
WORKDIR /src
COPY . .
COPY --from=dashboard /src/api/static api/static
RUN pip install --no-cache-dir ".${TRAIN:+[train]}" \
    && useradd --create-home trainhall \
    && install -d -o trainhall /var/lib/trainhall
USER trainhall
WORKDIR /home/trainhall
ENV TRAINHALL_DATA_DIR=/var/lib/trainhall
VOLUME /var/lib/trainhall
ENTRYPOINT ["trainhall"]
CMD ["server"]
