#!/bin/sh
# dpkg calls it with "remove" or "upgrade", rpm with the number of versions that stay. An operator may have removed the
# unit: the package can be removed all the same.
set -e
case "${1:-}" in
remove | 0) [ ! -d /run/systemd/system ] || systemctl disable --now relay.service || true ;;
esac
