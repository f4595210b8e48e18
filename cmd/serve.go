package cmd

import (
	"cmp"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/crypto/acme/autocert"
)

// settings are those of a server. Each is named, defaulted and explained once, in flags.
type settings struct {
	Addr, DB              string
	TLSCert, TLSKey       string
	ACME                  []string
	ACMEEmail             string
	ACMEDirectory         string
	TrustedProxies        []string
	Dev, RequireSignature bool
	LogFormat             string
	ClockSkew             time.Duration
	MaxConnections        int
	MaxBody               int64
	MaxBodyMemory         int64
	MaxHeaders            int
	HeaderTimeout         time.Duration
	BodyTimeout           time.Duration
	IdleTimeout           time.Duration
	RateLimit             float64
	RateBurst             int
	AuthFailureLimit      float64
	MaxPending            int
	MaxSockets            int
	MaxSocketsPerMecha    int
	SocketRateLimit       float64
	SyncAckWait           time.Duration
	AllowOrigins          []string
	MaxNonces             int64
	MinFreeDisk           int64
	Store                 string
}

// storeNone keeps nothing: relay bench measures with it what all but the store costs.
const storeNone = "none"

// flags is the one table of settings (PROTOCOL §7). 0 turns a
// limit off where that makes sense.
func (s *settings) flags(f *pflag.FlagSet) {
	f.StringVar(&s.Addr, "addr", "127.0.0.1:8080", "listen on `host:port`; port 0 takes a free one")
	f.StringVar(&s.DB, "db", "relay.db", "the database `file`; made if there is none")
	f.StringVar(&s.TLSCert, "tls-cert", "", "speak HTTPS, with the certificates in this PEM `file`; SIGHUP reads it again")
	f.StringVar(&s.TLSKey, "tls-key", "", "the private key for --tls-cert, in a PEM `file`")
	f.StringSliceVar(&s.ACME, "acme", nil, "speak HTTPS, with a certificate for this `domain` that is got, and renewed, by ACME on port 443; accepts the CA's terms of service; repeatable")
	f.StringVar(&s.ACMEEmail, "acme-email", "", "where the ACME CA may write to, an `address`")
	f.StringVar(&s.ACMEDirectory, "acme-directory", autocert.DefaultACMEDirectory, "the ACME CA's directory, a `url`")
	f.StringSliceVar(&s.TrustedProxies, "trusted-proxy", nil, "`networks` of proxies, as in 10.0.0.0/8, whose X-Forwarded-For is believed")
	f.BoolVar(&s.Dev, "dev", false, "also make two demo Mechas and print their keys")
	f.BoolVar(&s.RequireSignature, "require-message-signature", envBool("REQUIRE_MESSAGE_SIGNATURE"), "refuse unsigned requests (also: REQUIRE_MESSAGE_SIGNATURE=1)")
	f.StringVar(&s.LogFormat, "log-format", "text", "`text` or json, on stderr")
	f.DurationVar(&s.ClockSkew, "clock-skew", 5*time.Minute, "how far a request's timestamp may be off, 30s to 15m")
	f.IntVar(&s.MaxConnections, "max-connections", 60_000, "connections in all, and never more than 7/8 of the files that may be open; then those without a key make room")
	f.Int64Var(&s.MaxBody, "max-body", 1<<20, "`bytes` of a request body")
	f.Int64Var(&s.MaxBodyMemory, "max-body-memory", 512<<20, "`bytes` of bodies and answers under way in all, an eighth of it per key; those up to 16 KiB do not count")
	f.IntVar(&s.MaxHeaders, "max-headers", 16<<10, "`bytes` of a request's headers")
	f.DurationVar(&s.HeaderTimeout, "header-timeout", 5*time.Second, "for the headers to arrive")
	f.DurationVar(&s.BodyTimeout, "body-timeout", 30*time.Second, "for the body to arrive")
	f.DurationVar(&s.IdleTimeout, "idle-timeout", 120*time.Second, "between the requests of a connection")
	f.Float64Var(&s.RateLimit, "rate-limit", 500, "requests per second and key")
	f.IntVar(&s.RateBurst, "rate-burst", 1000, "requests at once above the rate")
	f.Float64Var(&s.AuthFailureLimit, "auth-failure-limit", 10, "failed authentications per second and client IP; ten seconds' worth at once")
	f.IntVar(&s.MaxPending, "max-pending", 100_000, "pending messages per recipient")
	f.IntVar(&s.MaxSockets, "max-sockets", 50_000, "sockets and long-polls in all")
	f.IntVar(&s.MaxSocketsPerMecha, "max-sockets-per-mecha", 16, "sockets and long-polls per Mecha")
	f.Float64Var(&s.SocketRateLimit, "socket-rate-limit", 2000, "frames per second read from a socket; two seconds' worth at once")
	f.DurationVar(&s.SyncAckWait, "sync-ack-wait", 60*time.Second, "how long a full sync window waits for a first acknowledgement")
	f.StringSliceVar(&s.AllowOrigins, "allow-origin", nil, "browser `origins` that may open a WebSocket, as in https://app.example; * allows all")
	f.Int64Var(&s.MaxNonces, "max-nonces", 4_000_000, "nonces remembered in all")
	f.Int64Var(&s.MinFreeDisk, "min-free-disk", 64<<20, "`bytes` of free disk below which messages are refused")
	// Not in the help, and not from the environment: nobody gets this by accident.
	f.StringVar(&s.Store, "store", "file", "file, or none to keep nothing, for measuring")
	_ = f.MarkHidden("store") // it is there
}

func envBool(name string) bool {
	switch value := strings.ToLower(os.Getenv(name)); value {
	case "", "off", "no":
		return false
	default: // what is no word for no means yes: it fails safe
		on, err := strconv.ParseBool(value)
		return on || err != nil
	}
}

func (s *settings) check(flags *pflag.FlagSet) error {
	if s.ClockSkew < 30*time.Second || s.ClockSkew > 15*time.Minute {
		return usagef("--clock-skew must be from 30s to 15m")
	}
	if s.LogFormat != "text" && s.LogFormat != "json" {
		return usagef("--log-format must be text or json")
	}
	if s.Store != "file" && (s.Store != storeNone || s.Dev) {
		return usagef("--store must be file; or none, without --dev, to keep nothing")
	}
	_, err := s.proxies()
	if err = cmp.Or(err, s.pairs(), s.checkACME()); err != nil {
		return err
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Value.String(), "-") && f.Value.Type() != "string" {
			err = usagef("--%s must not be negative", f.Name)
		}
	})
	return err
}

func (a *app) serveCommand() *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server, on one database file, until SIGINT or SIGTERM.

The file is made if there is none, readable by its owner only. Issue keys with
relay key create, at any time: they work at once. If the disk fails to keep a
write, the process stops with exit code 75; let a supervisor start it again.`,
		Example: `  relay serve --dev
  relay serve --addr 127.0.0.1:9000 --db /var/lib/relay/relay.db
  relay serve --addr :443 --tls-cert relay.pem --tls-key relay.key
  relay serve --addr :443 --acme relay.example.com
  REQUIRE_MESSAGE_SIGNATURE=1 relay serve`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, s) },
	}
	s.flags(cmd.Flags())
	return cmd
}

func (a *app) serve(cmd *cobra.Command, s *settings) error {
	if err := s.check(cmd.Flags()); err != nil {
		return err
	}
	// A log that nobody reads any more is no reason to stop.
	signal.Ignore(syscall.SIGPIPE)
	log := a.logger(s.LogFormat)
	// A closed terminal, or a renewed certificate, is no reason either.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	in, err := a.start(s, log)
	if err != nil {
		return err
	}
	warnIfOpen(log, s, in.addr)
	warnOfFolder(log, in.db.Path())
	if in.db.Discards() {
		log.Warn("--store none: NOTHING IS KEPT. Every message that is accepted is lost at once. This is for measuring alone")
	}
	log.Info("serving", "url", in.url, "db", in.db.Path(), "signatures_required", s.RequireSignature, "version", version)
	if s.Dev {
		if err := a.printDev(in); err != nil {
			in.stop()
			return err
		}
	}
	for {
		select {
		case <-hup:
			in.reload(log)
		case <-cmd.Context().Done():
			log.Info("stopping")
			return in.stop()
		case err := <-in.failed:
			log.Error("stopping after a failure", "error", err)
			in.stop()
			return exitError(exitStore)
		}
	}
}

func (a *app) logger(format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(a.stderr, nil))
	}
	return slog.New(slog.NewTextHandler(a.stderr, nil))
}
