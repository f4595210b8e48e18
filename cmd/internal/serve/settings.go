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

// flags is the one table of settings (PROTOCOL §7). Where it makes sense, 0 turns a limit off.
func (s *settings) flags(f *pflag.FlagSet) {
	s.all = f
	s.parts.flags(f)
	f.StringVar(&s.Addr, "addr", "127.0.0.1:8080", "`host:port` to listen on; port 0 takes a free port")
	f.StringVar(&s.DB, "db", "relay.db", "the database `file`; created if missing")
	f.StringVar(&s.TLSCert, "tls-cert", "",
		"speak HTTPS, with the certificates in this PEM `file`; SIGHUP reloads it")
	f.StringVar(&s.TLSKey, "tls-key", "", "the private key of --tls-cert, in a PEM `file`")
	f.StringSliceVar(&s.TrustedProxies, "trusted-proxy", nil, "`networks` of proxies whose X-Forwarded-For is "+
		"trusted, as in 10.0.0.0/8")
	f.BoolVar(&s.RequireSignature, "require-message-signature", envBool("REQUIRE_MESSAGE_SIGNATURE"),
		"refuse unsigned requests; REQUIRE_MESSAGE_SIGNATURE=1 does the same")
	f.BoolVar(&s.RequireRequestSignature, "require-request-signature", false,
		"refuse requests without X-Request-Signature, which also covers method and path")
	f.StringVar(&s.LogFormat, "log-format", "auto", "`format` of the log on stderr: text, json, or auto, which is "+
		"text on a terminal and JSON elsewhere")
	f.StringVar(&s.LogLevel, "log-level", "info", "minimum `level` to log: debug, info, warn or error; debug adds a "+
		"line for each request")
	f.DurationVar(&s.ClockSkew, "clock-skew", 5*time.Minute, "how far a request's timestamp may be off, 30s to 15m")
	f.IntVar(&s.MaxConnections, "max-connections", 60_000, "total connections, and never more than 7/8 of the "+
		"open-file limit; beyond that, new ones displace the oldest that have shown no key, then those of the "+
		"Mecha that holds most; 0: only the open-file limit applies")
	f.Int64Var(&s.MaxBody, "max-body", 1<<20, "`bytes` of a request body or of a WebSocket frame that sends a "+
		"message; 0: no limit")
	f.Int64Var(&s.MaxBodyMemory, "max-body-memory", 512<<20, "`bytes` of bodies and responses in memory, an eighth "+
		"of it per Mecha; those up to 16 KiB do not count; 0: no limit")
	f.IntVar(&s.MaxHeaders, "max-headers", 16<<10, "`bytes` of the request line and headers, from 4097; a pipelined "+
		"request may have 4 KiB more; 0: 1 MiB")
	f.DurationVar(&s.HeaderTimeout, "header-timeout", 5*time.Second, "time for the headers to arrive")
	f.DurationVar(&s.BodyTimeout, "body-timeout", 30*time.Second, "time for the body to arrive")
	f.DurationVar(&s.IdleTimeout, "idle-timeout", 120*time.Second, "time between a connection's requests")
	f.Float64Var(&s.RateLimit, "rate-limit", 500, "`requests` per second and key, including messages over "+
		"WebSockets; each 100 rows that a page scans count as one; 0: no limit")
	f.IntVar(&s.RateBurst, "rate-burst", 1000, "burst of `requests` per key above the rate")
	f.Float64Var(&s.AuthFailureLimit, "auth-failure-limit", 10, "`failures` to authenticate per second and client "+
		"IP, with a burst of ten seconds' worth; 0: no limit")
	f.IntVar(&s.MaxPending, "max-pending", 100_000, "pending messages per recipient; 0: no limit")
	f.IntVar(&s.ConversationLimit, "conversation-limit", 0, "messages per conversation whose founder set no "+
		"max_messages; 0: no limit")
	f.IntVar(&s.MaxAttempts, "max-attempts", 0, "attempts by workers before the relay acknowledges a message as "+
		"failed; a profile's max_attempts takes precedence")
	f.IntVar(&s.MaxBroadcast, "max-broadcast", 100, "`Mechas` that a message to a whole crew may reach, at most "+
		"1000; 0: such messages are refused")
	f.IntVar(&s.MaxSockets, "max-sockets", 50_000, "total WebSockets and long-polls; 0: no limit")
	f.IntVar(&s.MaxSocketsPerMecha, "max-sockets-per-mecha", 16, "WebSockets and long-polls per Mecha; 0: no limit")
	f.Float64Var(&s.SocketRateLimit, "socket-rate-limit", 2000, "`frames` per second read from all WebSockets of a "+
		"key, with a burst of two seconds' worth; 0: no limit")
	f.DurationVar(&s.SyncAckWait, "sync-ack-wait", 10*time.Second, "how long a full sync window waits for an ack "+
		"before it reopens; 0: forever")
	f.StringSliceVar(&s.AllowOrigins, "allow-origin", nil, "`origins` of browser pages that may open a WebSocket "+
		"and use the API, as in https://app.example; * allows all")
	f.Int64Var(&s.MaxNonces, "max-nonces", 4_000_000, "total nonces remembered; each takes 50 bytes of memory and "+
		"up to 32 in relay.db-nonces; 0: no limit")
	f.Var(&s.Retention, "retention", "`age` at which messages are removed, as in 30d or 12h, from 1s; none or 0: "+
		"they are kept")
	s.KeepExpired = cli.Days(24 * time.Hour)
	f.Var(&s.KeepExpired, "keep-expired", "`time` after expires_at at which expired messages are removed, from 1s; "+
		"0: only their age counts")
	f.Int64Var(&s.MinFreeDisk, "min-free-disk", 64<<20, "free disk in `bytes` below which messages are refused "+
		"(507); 0: no minimum")
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
