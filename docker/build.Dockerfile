# Makes the wheel against an old glibc and hands it out:
#   DOCKER_BUILDKIT=1 docker build -f docker/build.Dockerfile --target wheel --output dist .
# `scripts/artf build --container` does that and more. docs/containers.md has the arguments.
ARG BASE=debian:bookworm-slim
ARG SYSROOT_BASE=debian:bullseye-slim

# The compiler, the C and C++ libraries and their headers of an old release: what is compiled with
# them runs on every later one.
FROM ${SYSROOT_BASE} AS sysroot
ARG APT_MIRROR=""
RUN --mount=type=bind,source=docker/through,target=/usr/local/bin/through \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    through apt-get update -qq \
    && through apt-get install -y -qq --no-install-recommends g++ \
    && mkdir /sysroot \
    && cp -a /usr /lib /lib64 /sysroot/ \
    # Links that are absolute would lead into the newer image.
    && find /sysroot -lname '/*' -exec sh -c 'ln -sfn "/opt/old$(readlink "$1")" "$1"' _ {} \; \
    && rm -rf /sysroot/usr/share /var/lib/apt/lists/*

# Bazel, and all else that a build needs: changes with this file alone. apt's lists stay, since
# sources that upstream does not give are fetched from Debian.
FROM ${BASE} AS tools
ARG APT_MIRROR=""
RUN --mount=type=bind,source=docker/through,target=/usr/local/bin/through \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    # Java's packages fail without this folder, which slim images lack.
    mkdir -p /usr/share/man/man1 \
    && through apt-get update -qq \
    && through apt-get install -y -qq --no-install-recommends bazel-bootstrap ca-certificates \
       debian-archive-keyring g++ git python3
COPY --from=sysroot /sysroot/ /opt/old/
COPY docker/old-cc /usr/local/bin/old-cc
ENV CC=/usr/local/bin/old-cc ARTF_CACHE=/cache

FROM tools AS build
ARG APT_MIRROR=""
ARG PIP_INDEX_URL=""
ARG WHEEL_PYTHON=cp311
ARG WHEEL_BASE=tensorflow-cpu
WORKDIR /src
COPY WORKSPACE ./
COPY build/ build/
COPY patches/ patches/
COPY third_party/ third_party/
COPY scripts/ scripts/
# The cache outlives the layer: after a change of the sources only what changed is compiled.
RUN --mount=type=bind,source=docker/through,target=/usr/local/bin/through \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=cache,id=artf-cache,target=/cache,sharing=locked \
    through scripts/artf build --base "${WHEEL_BASE}" --python "${WHEEL_PYTHON}" \
    && mkdir /out && cp dist/*.whl /out/

FROM scratch AS wheel
COPY --from=build /out/ /
