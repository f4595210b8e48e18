package cmd_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// install is what an operator does with the package, on a copy of this machine's
// files that is gone afterwards. Nothing in it runs as a service: there is no
// systemd in the copy.
const install = `
set -eu
mount -t tmpfs tmpfs "$DIR"
mkdir "$DIR/upper" "$DIR/work" "$DIR/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$DIR/upper,workdir=$DIR/work" "$DIR/root"
mount -t tmpfs tmpfs "$DIR/root/run"
cp "$OLDER" "$DIR/root/run/older.deb"
cp "$NEWER" "$DIR/root/run/newer.deb"
[ -z "$SYSTEMD" ] || mkdir -p "$DIR/root/run/systemd/system"
exec chroot "$DIR/root" sh -euc '
as() { user=$1; shift; setpriv --reuid "$user" --regid "$user" --clear-groups "$@"; }
in="dpkg --no-triggers"
$in -i /run/older.deb >/run/log || { cat /run/log; exit 1; }
stat -c "folder %U:%G %a" /var/lib/relay
as relay relay key create a^day --create --db /var/lib/relay/relay.db >/dev/null
stat -c "database %U:%G %a" /var/lib/relay/relay.db
echo RELAY_ADDR=127.0.0.1:9 >>/etc/relay/relay.env
$in -i /run/newer.deb >/run/log || { cat /run/log; exit 1; }
relay version
tail -n 1 /etc/relay/relay.env
$in -r relay >/run/log 2>&1 || { cat /run/log; exit 1; }
[ ! -e /usr/bin/relay ]
[ ! -e /usr/lib/systemd/system/relay.service ]
$in -P relay >/run/log 2>&1 || { cat /run/log; exit 1; }
[ ! -e /etc/relay ]
stat -c "kept %U %s" /var/lib/relay/relay.db | sed "s/ [0-9]*$//"
$in -i /run/older.deb >/run/log || { cat /run/log; exit 1; }
as relay relay key list --db /var/lib/relay/relay.db | grep -o a^day
'
`

// dpkg installs the package, upgrades it, removes it, and installs it again. The
// database belongs to the service's user and outlives it all; an operator's settings
// outlive an upgrade. All this goes well also where systemctl fails, as it does here if
// the copy seems to have systemd.
func TestTheDebIsInstalledUpgradedAndRemoved(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount and install")
	}
	tool(t, "unshare", "mount", "chroot", "dpkg", "setpriv", "stat", "cp")
	if err := exec.Command("unshare", "--mount", "sh", "-ec", `mount -t tmpfs tmpfs "$0" && mkdir "$0/u" "$0/w" "$0/r" && mount -t overlay overlay -o "lowerdir=/,upperdir=$0/u,workdir=$0/w" "$0/r"`, t.TempDir()).Run(); err != nil {
		t.Skip("no overlay of / can be mounted here: ", err)
	}
	if _, err := os.Stat("/var/lib/relay"); err == nil {
		t.Skip("relay is installed on this machine")
	}
	p := mustMakePackages(t)
	for _, systemd := range []string{"", "1"} {
		installs(t, p, "SYSTEMD="+systemd)
	}
}

func installs(t *testing.T, p packages, more string) {
	t.Helper()
	c := exec.Command("unshare", "--mount", "sh", "-c", install)
	env := []string{more, "DIR=" + t.TempDir(), "OLDER=" + p.file(t, "relay_"+older+"_*.deb"), "NEWER=" + p.file(t, "relay_"+newer+"_*.deb"), "DEBIAN_FRONTEND=noninteractive"}
	r := finish(t, c, env, "").wantCode(t, 0)
	want := "folder relay:relay 700\ndatabase relay:relay 600\nrelay " + newer + " "
	if !strings.HasPrefix(r.out, want) || !strings.HasSuffix(r.out, "RELAY_ADDR=127.0.0.1:9\nkept relay\na^day\n") {
		t.Errorf("it prints:\n%s", r.out)
	}
}
