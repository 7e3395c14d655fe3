#!/usr/bin/env bash
# Installs cargo-make, which runs Makefile.toml, if it is missing: from crates.io, without what its tasks here do not use, and
# not optimised, which takes half the time.
set -euo pipefail

if command -v cargo-make >/dev/null || [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo-make ]]; then
    exit 0
fi
echo "installing cargo-make"
CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --no-default-features --bin cargo-make cargo-make
