# phylatent with everything that `make demo` needs, for a CPU; nobody but an ordinary user runs in it.
#
#   docker build --tag phylatent .
#   docker build --tag phylatent:cuda --build-arg TORCH=cu130 .        (docs/install.md)
#   docker run --rm --volume phylatent:/data phylatent demo
#
# BASE is any Debian image with Python 3.11 or newer. torch's wheels bring CUDA's libraries with them: of CUDA the host needs
# the driver only.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS wheel
WORKDIR /source
COPY pyproject.toml MANIFEST.in README.md LICENSE ./
COPY src src
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM ${BASE}
ARG TORCH=cpu
ARG EXTRAS=all
# MuJoCo draws through EGL: by Mesa on a CPU, by the driver's own library where there is a GPU.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libegl1 libgl1 libgl1-mesa-dri libopengl0 \
    && rm -rf /var/lib/apt/lists/*
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheel /wheels /tmp/wheels
# uv, because it knows where torch and torchvision for a CPU or a version of CUDA are: mixing the two kinds does not work.
RUN python -m pip install --no-cache-dir uv \
    && uv pip install --system --no-cache --torch-backend "${TORCH}" --constraint /tmp/constraints.txt \
       "$(echo /tmp/wheels/phylatent-*.whl)[${EXTRAS}]" \
    && python -m pip uninstall --yes uv \
    && rm -rf /tmp/wheels /tmp/constraints.txt

RUN useradd --create-home --uid 1000 phylatent && install --directory --owner phylatent /data
ENV PHYLATENT_HOME=/data MUJOCO_GL=egl NVIDIA_DRIVER_CAPABILITIES=compute,graphics,utility
USER phylatent
WORKDIR /data
VOLUME /data
ENTRYPOINT ["phylatent"]
CMD ["--help"]
