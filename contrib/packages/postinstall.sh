#!/bin/sh
# Runs after an installation and after an upgrade. A service that runs is started anew, with the new program; one that
# does not run stays as it is. No package operation fails because systemd does.
set -e
if ! getent passwd relay >/dev/null; then
  if command -v useradd >/dev/null; then
    getent group relay >/dev/null || groupadd --system relay
    useradd --system --gid relay --home-dir /var/lib/relay --no-create-home --shell /usr/sbin/nologin relay
  else
    getent group relay >/dev/null || addgroup -S relay
    adduser -S -D -H -G relay -h /var/lib/relay -s /sbin/nologin relay
  fi
fi
# For `relay key create --create` before the first start. systemd would make the same folder.
[ -e /var/lib/relay ] || install -d -m 0700 -o relay -g relay /var/lib/relay
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
  systemctl try-restart relay.service || true
fi
