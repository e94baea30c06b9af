# dsocr on a CPU, or on a GPU with --build-arg TORCH=cu130:
#   docker build -t dsocr .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" dsocr demo
FROM python:3.13-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY configs configs
COPY examples examples
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:3.13-slim-bookworm
ARG TORCH=cpu
ENV HF_HOME=/data/.cache/huggingface HOME=/tmp PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1
COPY constraints.txt /dist/
RUN python -m pip install --index-url "https://download.pytorch.org/whl/${TORCH}" torch==2.13.0
RUN --mount=type=bind,from=build,source=/dist,target=/wheels \
    set -- /wheels/*.whl && \
    python -m pip install --constraint /dist/constraints.txt "dsocr-hw[documents,heic,server,train,workbench] @ file://$1"
RUN useradd --uid 1000 --create-home reader
USER 1000
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["dsocr"]
CMD ["--help"]
