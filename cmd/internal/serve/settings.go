package serve

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"relay/cmd/internal/cli"
)

// settings are the settings of a server. The method flags gives each its name,
// default and explanation.
type settings struct {
	Addr, DB            string
	TLSCert, TLSKey     string
	TrustedProxies      []string
	RequireSignature    bool
	LogFormat, LogLevel string
	ClockSkew           time.Duration
	MaxConnections      int
	MaxBody             int64
	MaxBodyMemory       int64
	MaxHeaders          int
	HeaderTimeout       time.Duration
	BodyTimeout         time.Duration
	IdleTimeout         time.Duration
	RateLimit           float64
	RateBurst           int
	AuthFailureLimit    float64
	MaxPending          int
	ConversationLimit   int
	MaxAttempts         int
	MaxBroadcast        int
	MaxSockets          int
	MaxSocketsPerMecha  int
	SocketRateLimit     float64
	SyncAckWait         time.Duration
	AllowOrigins        []string
	MaxNonces           int64
	MinFreeDisk         int64
	Retention           cli.Days
	KeepExpired         cli.Days

	RequireRequestSignature bool

	all   *pflag.FlagSet // all flags, those of the parts too
	parts parts
}

func newSettings() *settings { return &settings{parts: newParts()} }

// flags is the one table of settings (PROTOCOL §7). 0 turns a limit off where
// that makes sense.
func (s *settings) flags(f *pflag.FlagSet) {
	s.all = f
	s.parts.flags(f)
	f.StringVar(&s.Addr, "addr", "127.0.0.1:8080", "listen on `host:port`; port 0 takes any free port")
	f.StringVar(&s.DB, "db", "relay.db", "the database `file`; it is created if there is none")
	f.StringVar(&s.TLSCert, "tls-cert", "", "speak HTTPS, with the certificates in this PEM `file`; SIGHUP reads it again")
	f.StringVar(&s.TLSKey, "tls-key", "", "the private key of --tls-cert, in a PEM `file`")
	f.StringSliceVar(&s.TrustedProxies, "trusted-proxy", nil,
		"believe the X-Forwarded-For of the proxies in these `networks`, as in 10.0.0.0/8")
	f.BoolVar(&s.RequireSignature, "require-message-signature", envBool("REQUIRE_MESSAGE_SIGNATURE"),
		"refuse unsigned requests; REQUIRE_MESSAGE_SIGNATURE=1 does the same")
	f.BoolVar(&s.RequireRequestSignature, "require-request-signature", false,
		"refuse requests without X-Request-Signature, which covers the method and the path, too")
	f.StringVar(&s.LogFormat, "log-format", "auto",
		"the `format` of the log on stderr: text, json, or auto, which is text on a terminal, and json elsewhere")
	f.StringVar(&s.LogLevel, "log-level", "info",
		"the least `level` that is logged: debug, info, warn or error; debug has a line for each request")
	f.DurationVar(&s.ClockSkew, "clock-skew", 5*time.Minute,
		"how far a request's timestamp may be from this machine's clock, 30s to 15m")
	f.IntVar(&s.MaxConnections, "max-connections", 60_000,
		"open connections, and never more than 7/8 of the files that the process may open; "+
			"beyond that, connections without a key are closed for new ones, then those of the Mecha that holds most")
	f.Int64Var(&s.MaxBody, "max-body", 1<<20,
		"the largest request body, and the largest WebSocket frame that sends a message, in `bytes`")
	f.Int64Var(&s.MaxBodyMemory, "max-body-memory", 512<<20, "memory for all bodies and answers under way, in `bytes`; "+
		"one Mecha may use an eighth of it; bodies and answers up to 16 KiB do not count")
	f.IntVar(&s.MaxHeaders, "max-headers", 16<<10,
		"the largest request line and headers of a request, in `bytes`, from 4097")
	f.DurationVar(&s.HeaderTimeout, "header-timeout", 5*time.Second, "time in which a request's headers must arrive")
	f.DurationVar(&s.BodyTimeout, "body-timeout", 30*time.Second, "time in which a request's body must arrive")
	f.DurationVar(&s.IdleTimeout, "idle-timeout", 120*time.Second,
		"time that a connection may stay open between two requests")
	f.Float64Var(&s.RateLimit, "rate-limit", 500, "`requests` per second for each key, messages over WebSockets among "+
		"them; each 100 rows that a page looks through count as one")
	f.IntVar(&s.RateBurst, "rate-burst", 1000, "`requests` of a key at once, above --rate-limit")
	f.Float64Var(&s.AuthFailureLimit, "auth-failure-limit", 10,
		"`failures` to authenticate, per second for each client IP; ten seconds' worth at once")
	f.IntVar(&s.MaxPending, "max-pending", 100_000, "pending messages for each recipient")
	f.IntVar(&s.ConversationLimit, "conversation-limit", 0,
		"messages of a conversation whose founder set no max_messages (default: any number)")
	f.IntVar(&s.MaxAttempts, "max-attempts", 0,
		"attempts of workers at a message before the relay acknowledges it as failed (default: any number)")
	f.IntVar(&s.MaxBroadcast, "max-broadcast", 100,
		"to how many `Mechas` a message to a whole crew may go, at most 1000; 0 refuses such messages")
	f.IntVar(&s.MaxSockets, "max-sockets", 50_000, "WebSockets and long-polls in all")
	f.IntVar(&s.MaxSocketsPerMecha, "max-sockets-per-mecha", 16, "WebSockets and long-polls for each Mecha")
	f.Float64Var(&s.SocketRateLimit, "socket-rate-limit", 2000,
		"`frames` per second that are read from all WebSockets of a key; two seconds' worth at once")
	f.DurationVar(&s.SyncAckWait, "sync-ack-wait", 10*time.Second,
		"how long a full sync window waits for an acknowledgement before it opens again")
	f.StringSliceVar(&s.AllowOrigins, "allow-origin", nil,
		"`origins` of pages in browsers that may open a WebSocket and use the API, as in https://app.example; * allows all")
	f.Int64Var(&s.MaxNonces, "max-nonces", 4_000_000, "nonces that are remembered in all")
	f.Var(&s.Retention, "retention", "remove messages of this `age`, as in 30d or 12h, from 1s (default: keep them)")
	s.KeepExpired = cli.Days(24 * time.Hour)
	f.Var(&s.KeepExpired, "keep-expired",
		"remove messages that have expired this `time` ago, from 1s; 0 leaves them to --retention")
	f.Int64Var(&s.MinFreeDisk, "min-free-disk", 64<<20,
		"refuse messages when the disk has less than this free, in `bytes`")
}

func envBool(name string) bool {
	switch value := strings.ToLower(os.Getenv(name)); value {
	case "", "off", "no":
		return false
	default: // any value that does not mean no turns signatures on
		on, err := strconv.ParseBool(value)
		return on || err != nil
	}
}

func (s *settings) check() error {
	if err := cmp.Or(cli.CheckHostPort("addr", s.Addr), cli.CheckLog(s.LogFormat, s.LogLevel)); err != nil {
		return err
	}
	if s.ClockSkew < 30*time.Second || s.ClockSkew > 15*time.Minute {
		return cli.Usagef("--clock-skew must be from 30s to 15m")
	}
	if s.MaxBroadcast > 1000 {
		return cli.Usagef("--max-broadcast must be at most 1000")
	}
	if s.MaxHeaders > 0 && s.MaxHeaders < 4097 {
		return cli.Usagef("--max-headers must be at least 4097")
	}
	if tooShort := func(age cli.Days) bool { return age != 0 && age < cli.Days(time.Second) }; tooShort(s.Retention) ||
		tooShort(s.KeepExpired) {
		return cli.Usagef("--retention and --keep-expired must be at least 1s, or 0")
	}
	_, err := s.proxies()
	if err = cmp.Or(err, s.pairs(), s.parts.check(s.all)); err != nil {
		return err
	}
	s.all.VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Value.String(), "-") && f.Value.Type() != "string" {
			err = cli.Usagef("--%s must not be negative", f.Name)
		}
	})
	return err
}
