# One image for web, edge, workers, beat and simulator: the command says which (docker-compose.yml, docs/operations.md).
# The tests do not build it; they start its processes with the user, environment and folder rights that it says.
FROM python:3.11-slim-bookworm AS build
COPY requirements.txt /
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --require-hashes -r /requirements.txt

FROM python:3.11-slim-bookworm
ARG SERVICE_SHA=unknown
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 SERVICE_SHA=$SERVICE_SHA
RUN useradd --system --uid 10001 --create-home gateway && install -d -o gateway -m 0700 /data /state
ENV DATA_DIR=/data
COPY --from=build /venv /venv
WORKDIR /app
COPY . .
# Static files are named by their content, which only production settings do; no secret of this step is used later.
RUN ENVIRONMENT=production SECRET_KEY=build DATABASE_URL=postgresql:///none REDIS_URL=redis://none \
    python manage.py collectstatic --no-input --verbosity 0
RUN NO_MKDOCS_2_WARNING=1 PYTHONPATH=. mkdocs build --quiet
USER gateway
EXPOSE 8000 8050
STOPSIGNAL SIGTERM
CMD ["gunicorn", "gateway.wsgi", "--bind=0.0.0.0:8000", "--worker-class=gateway.web_worker.Worker", "--workers=2", "--threads=40", \
     "--graceful-timeout=20", "--no-control-socket", "--preload"]
