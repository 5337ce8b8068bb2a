"""Substitutes of the public images in Dockerfile and docker-compose.yml, built from Debian's packages.

`make containers` uses them on a machine that reaches a Debian mirror but no image registry. A substitute has those
programs, users, entry points and volumes of the public image that the files use. If the stable release has a program
only in a version that is too old, the program comes from the next release.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
STABLE, NEXT = "bookworm", "forky"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""The authorities that this machine trusts. An image needs them to install packages over the same network."""

_LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/lib/apt/lists", "var/cache/apt")
_CLEAN = f"rm -rf {' '.join(f'/{folder}/*' for folder in _LEFT_OUT)}"
# A mirror may be an old snapshot, whose package lists have expired.
_APT = "apt-get -qq -o Acquire::Check-Valid-Until=false"
_INSTALL = f"{_APT} update && DEBIAN_FRONTEND=noninteractive {_APT} install --yes --no-install-recommends"
_PYTHON = f"""
FROM base:{STABLE}
RUN {_INSTALL} python3 python3-venv python3-pip ca-certificates \
    && ln -s python3 /usr/bin/python && rm -f /usr/lib/python3*/EXTERNALLY-MANAGED && {_CLEAN} \
    && find /usr/lib/python3* -name "*.pyc" -delete
COPY ca-certificates.crt /etc/ssl/certs/
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
"""
_POSTGRES = f"""
FROM base:{NEXT}
RUN {_INSTALL} postgresql-18 && rm -rf /var/lib/postgresql/*
RUN chmod 3777 /run/postgresql
ENV PATH=/usr/lib/postgresql/18/bin:$PATH PGDATA=/var/lib/postgresql/18/docker
COPY entry.sh /
VOLUME /var/lib/postgresql
STOPSIGNAL SIGINT
ENTRYPOINT ["sh", "/entry.sh"]
"""
_POSTGRES_ENTRY = """
set -e
as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    install -d -o postgres -m 0700 "$PGDATA"
    printf %s "$POSTGRES_PASSWORD" >/tmp/password && chown postgres /tmp/password
    as_postgres initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-host=scram-sha-256 --auth-local=trust
    rm /tmp/password
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    as_postgres pg_ctl --wait --options="-c listen_addresses=''" start
    as_postgres createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    as_postgres pg_ctl --wait --mode=fast stop
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups postgres -c "listen_addresses=*" "$@"
"""
_VALKEY = f"""
FROM base:{NEXT}
RUN {_INSTALL} valkey-server valkey-tools
"""
_NGINX = f"""
FROM base:{NEXT}
RUN {_INSTALL} nginx-light gettext-base \
    && mkdir -p /var/cache/nginx && rm -rf /var/lib/nginx && ln -s /var/cache/nginx /var/lib/nginx
COPY entry.sh /
STOPSIGNAL SIGQUIT
ENTRYPOINT ["sh", "/entry.sh"]
CMD ["nginx", "-g", "daemon off;"]
"""
_NGINX_ENTRY = """
set -e
export NGINX_LOCAL_RESOLVERS="$(awk '/^nameserver/ {print $2}' /etc/resolv.conf | tr '\\n' ' ')"
for template in /etc/nginx/templates/*.template; do
    rendered="$NGINX_ENVSUBST_OUTPUT_DIR/$(basename "$template" .template)"
    envsubst '$NGINX_LOCAL_RESOLVERS $SERVICE_NAME' <"$template" >"$rendered"
done
exec "$@"
"""
_IMAGES: dict[str, tuple[str, str]] = {
    "python:3.11-slim-bookworm": (_PYTHON, ""),
    "postgres:18": (_POSTGRES, _POSTGRES_ENTRY),
    "valkey/valkey:9": (_VALKEY, ""),
    "nginx:1.28": (_NGINX, _NGINX_ENTRY),
}


class MissingError(Exception):
    """This machine lacks a tool, a permission or a substitute that a build needs."""


def build(engine: Sequence[str], wanted: Sequence[str], say: Callable[[str], None]) -> None:
    """Build and tag a substitute for each image in `wanted`. Raises CalledProcessError, MissingError."""
    if unknown := set(wanted) - set(_IMAGES):
        raise MissingError(f"No registry gives {', '.join(sorted(unknown))}, and there is no substitute.")
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise MissingError(
            "Substitutes of the images need root and debootstrap (Debian: apt-get install debootstrap)."
        )
    for release in sorted({_release(name) for name in wanted}):
        if not exists(engine, f"base:{release}"):
            say(f"base:{release} from {MIRROR}")
            _bootstrap(engine, release)
    for name in wanted:
        say(f"{name} from Debian's packages")
        containerfile, entry = _IMAGES[name]
        with tempfile.TemporaryDirectory() as directory:
            context = Path(directory)
            (context / "Dockerfile").write_text(containerfile)
            (context / "entry.sh").write_text(entry)
            shutil.copy(CERTIFICATES, context / "ca-certificates.crt")
            subprocess.run([*engine, "build", "--quiet", "--tag", name, directory], check=True)


def exists(engine: Sequence[str], name: str) -> bool:
    """Whether the engine has an image."""
    return (
        subprocess.run([*engine, "image", "inspect", name], capture_output=True, check=False).returncode == 0
    )


def _release(name: str) -> str:
    return STABLE if f"base:{STABLE}" in _IMAGES[name][0] else NEXT


def _bootstrap(engine: Sequence[str], release: str) -> None:
    """Import a minimal Debian as `base:RELEASE`. The sid script of debootstrap works for every Debian release."""
    with tempfile.TemporaryDirectory() as directory:
        root = f"{directory}/root"
        script = "/usr/share/debootstrap/scripts/sid"
        subprocess.run(
            ["debootstrap", "--variant=minbase", release, root, MIRROR, script],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        left_out = [f"--exclude=./{folder}/*" for folder in _LEFT_OUT]
        packed = subprocess.Popen(["tar", "-C", root, *left_out, "-c", "."], stdout=subprocess.PIPE)
        subprocess.run(
            [*engine, "import", "-", f"base:{release}"],
            stdin=packed.stdout,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        if packed.wait():
            raise subprocess.CalledProcessError(packed.returncode, "tar")
