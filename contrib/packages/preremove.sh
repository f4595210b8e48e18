#!/bin/sh
# dpkg calls it with "remove" or "upgrade", rpm with the number of versions that stay.
set -e
case "${1:-}" in
remove | 0) [ ! -d /run/systemd/system ] || systemctl disable --now relay.service ;;
esac
