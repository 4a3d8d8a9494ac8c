# Installs the wheel. Targets: `runtime` (the wheel and what it depends on, to derive from) and
# `quickstart` (the same with the LeNet training that docker/compose.yaml runs):
#   DOCKER_BUILDKIT=1 docker build -f docker/runtime.Dockerfile --target runtime \
#     --build-arg WHEEL=dist/NAME.whl .
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS base
ARG APT_MIRROR=""
# rdma-core's user space, which the wheel opens at run time and never links.
RUN --mount=type=bind,source=docker/through,target=/usr/local/bin/through \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    through apt-get update -qq \
    && through apt-get install -y -qq --no-install-recommends \
       ibverbs-providers libibverbs1 librdmacm1 python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
ENV PATH=/opt/tensorflow/bin:$PATH

FROM base AS installed
ARG APT_MIRROR=""
ARG PIP_INDEX_URL=""
RUN --mount=type=bind,source=docker/through,target=/usr/local/bin/through \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    through apt-get update -qq \
    && through apt-get install -y -qq --no-install-recommends python3-venv \
    && python3 -m venv /opt/tensorflow
# Before the wheel: these layers stay when it changes.
COPY build/requirements/runtime-base.txt /tmp/
RUN --mount=type=bind,source=docker/through,target=/usr/local/bin/through \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    through pip install -q --no-cache-dir --disable-pip-version-check --no-deps \
      --require-hashes -r /tmp/runtime-base.txt
ARG WHEEL
COPY ${WHEEL} /tmp/wheel/
RUN pip install -q --no-cache-dir --disable-pip-version-check --no-deps --no-index \
      /tmp/wheel/*.whl \
    && pip check

# The bill of materials: the Debian packages of the base, the Python packages, our sources.
FROM installed AS described
COPY build/requirements/sbom.txt /tmp/
RUN --mount=type=bind,source=docker/through,target=/usr/local/bin/through \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /opt/sbom \
    && through /opt/sbom/bin/pip install -q --no-cache-dir --disable-pip-version-check --no-deps \
      --require-hashes -r /tmp/sbom.txt
COPY --from=base /var/lib/dpkg/status /tmp/status
COPY scripts/artf_cli/containers/sbom.py /tmp/
RUN /opt/sbom/bin/python /tmp/sbom.py /tmp/status \
      /opt/tensorflow/lib/python3*/site-packages /tmp/sbom.cdx.json

FROM base AS runtime
COPY --from=installed /opt/tensorflow/ /opt/tensorflow/
COPY --from=described /tmp/sbom.cdx.json /usr/share/ar-grpc/
COPY scripts/artf_cli/runtime/health.py scripts/artf_cli/runtime/settings.py /opt/ar-grpc/
# Not root; the number is the same in every container, because a peer's user must be the same.
RUN useradd --uid 1000 --user-group --create-home ar \
    && install -d -o ar -g ar -m 0700 /run/ar-grpc
USER 1000:1000
WORKDIR /home/ar
CMD ["python"]
HEALTHCHECK --interval=60s --timeout=60s --start-period=60s --retries=3 \
    CMD ["python", "/opt/ar-grpc/health.py"]
ARG VERSION=""
ARG REVISION=""
ARG BASE_DIGEST=""
LABEL org.opencontainers.image.title="RDMA-enhanced TensorFlow" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}" \
      org.opencontainers.image.licenses="Apache-2.0"

FROM runtime AS with-digits
ARG PIP_INDEX_URL=""
USER 0:0
# pip adds what is not there yet: the digits' package and what it needs.
RUN --mount=type=bind,source=docker/through,target=/usr/local/bin/through \
    --mount=type=bind,source=build/requirements/runtime.txt,target=/tmp/runtime.txt \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    through pip install -q --no-cache-dir --disable-pip-version-check --no-deps \
      --require-hashes -r /tmp/runtime.txt
USER 1000:1000

FROM described AS described-with-digits
RUN --mount=type=bind,from=with-digits,source=/opt/tensorflow,target=/opt/with-digits \
    /opt/sbom/bin/python /tmp/sbom.py /tmp/status \
      /opt/with-digits/lib/python3*/site-packages /tmp/sbom.cdx.json

FROM with-digits AS quickstart
COPY --from=described-with-digits /tmp/sbom.cdx.json /usr/share/ar-grpc/
COPY scripts/artf_cli/runtime/ports.py scripts/artf_cli/runtime/replica.py scripts/artf_cli/runtime/task.py \
     scripts/artf_cli/runtime/tcp_info.py scripts/artf_cli/runtime/train_lenet.py /opt/ar-grpc/
CMD ["python", "-u", "/opt/ar-grpc/replica.py"]
