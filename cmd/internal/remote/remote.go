// Package remote has the flags of every command that speaks to a relay, the client that they configure, and
// advice about the errors of its requests.
package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/db/relay"
	"relay/http/client"
)

// Flags are the flags of every command that speaks to a relay.
type Flags struct{ URL, KeyFile, SecretFile, CAFile string }

// Add adds the flags to a command, and advice to its errors.
func (f *Flags) Add(cmd *cobra.Command) {
	f.AddServer(cmd)
	f.AddKey(cmd)
}

// AddServer is Add for a command that needs no key.
func (f *Flags) AddServer(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.URL, "url", client.DefaultURL, "the relay's `address`")
	cmd.Flags().StringVar(&f.CAFile, "ca-file", "", "a PEM `file` of certificates to trust in addition to the system's")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return Advice(run(cmd, args)) }
}

func (f *Flags) AddKey(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.KeyFile, "key-file", "", "a `file` with the key, instead of RELAY_KEY")
	cmd.Flags().StringVar(&f.SecretFile, "signing-secret-file", "",
		"a `file` with the signing secret, instead of RELAY_SIGNING_SECRET")
}

// Client makes the client for these flags. No error repeats the URL, which may
// hold a password, or by mistake the key.
func (f *Flags) Client() (*client.Client, error) {
	key, secret, err := f.Secrets()
	if err != nil {
		return nil, err
	}
	config, err := f.TLS()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{URL: f.URL, Key: key, SigningSecret: secret, TLS: config})
	return c, InFlags(err)
}

// Signer makes the signer for these flags. It needs no relay.
func (f *Flags) Signer() (*client.Signer, error) {
	key, secret, err := f.Secrets()
	if err != nil {
		return nil, err
	}
	s, err := client.NewSigner(key, secret)
	return s, InFlags(err)
}

// Secrets reads the key from --key-file or RELAY_KEY, and the signing secret from --signing-secret-file or
// RELAY_SIGNING_SECRET. Neither may be an argument: other users can see arguments.
func (f *Flags) Secrets() (key, secret string, err error) {
	if key, err = ReadSecret(f.KeyFile, "RELAY_KEY"); err != nil {
		return "", "", err
	}
	if key == "" {
		return "", "", cli.Usagef("no key: set RELAY_KEY, or --key-file (relay key create ADDRESS issues one)")
	}
	secret, err = ReadSecret(f.SecretFile, "RELAY_SIGNING_SECRET")
	return key, secret, err
}

// ReadSecret reads a secret from a file if one is named, else from the environment.
func ReadSecret(file, name string) (string, error) {
	text := []byte(os.Getenv(name))
	if file != "" {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			var failed *fs.PathError
			if errors.As(err, &failed) {
				err = failed.Err
			}
			return "", fmt.Errorf("cannot read %s: %w", relay.Visible(file), err)
		}
	}
	return strings.TrimSpace(string(text)), nil
}

// TLS reads --ca-file, whose certificates are trusted in addition to the system's.
func (f *Flags) TLS() (*tls.Config, error) {
	if f.CAFile == "" {
		return nil, nil
	}
	config, err := client.TrustFile(f.CAFile)
	switch {
	case errors.Is(err, client.ErrNoCertificate):
		return nil, fmt.Errorf("%s (--ca-file) has no certificate in PEM", f.CAFile)
	case err != nil:
		return nil, fmt.Errorf("cannot read --ca-file: %w", err)
	}
	return config, nil
}

// InFlags adds to an error the flag that sets the field of client.Config.
func InFlags(err error) error {
	var config *client.ConfigError
	switch {
	case !errors.As(err, &config):
		return err
	case config.Field == "URL":
		return cli.Usagef("--url (RELAY_URL) %s", config.Reason)
	}
	return fmt.Errorf("the key %s", config.Reason)
}

// advised is an error with advice that only the command line can give.
type advised struct {
	error
	advice string
}

func (e advised) Error() string { return e.error.Error() + e.advice }
func (e advised) Unwrap() error { return e.error }

// Advice adds to the error of a request what to do about it, unless the error already has advice.
func Advice(err error) error {
	var refused *client.Refusal
	switch {
	case err == nil, errors.As(err, new(advised)):
		return err
	case client.Refused(err, relay.TimestampOutOfRange):
		return advised{err, "; set this machine's clock"}
	case errors.As(err, &refused) && known(refused.Code):
		return advised{err, fmt.Sprintf("; see relay errors %s", refused.Code)}
	case untrusted(err):
		return advised{err, "; if the certificate is the right one, trust its authority with --ca-file (RELAY_CA_FILE)"}
	}
	return err
}

// known reports whether relay errors explains a code. A relay of another version, or another program, may
// answer with an unknown code.
func known(code relay.Code) bool {
	return slices.ContainsFunc(relay.Codes, func(c relay.CodeInfo) bool { return c.Code == code })
}

// untrusted reports whether a relay's certificate is signed by an authority that this system does not trust.
// Some systems have their own error for this.
func untrusted(err error) bool {
	var failed *tls.CertificateVerificationError
	return errors.As(err, &failed) && !errors.As(err, new(x509.HostnameError)) &&
		!errors.As(err, new(x509.CertificateInvalidError))
}

// readyTimeout is the time for one inquiry whether a relay is ready.
const readyTimeout = 5 * time.Second

// AskReady asks a relay whether it is ready, for a while.
func AskReady(ctx context.Context, base string, config *tls.Config) (client.Readiness, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	answer, err := client.AskReady(ctx, base, config)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		u, _ := url.Parse(base) // AskReady has read it; its password must not be shown
		err = fmt.Errorf("the server at %s does not answer", u.Host)
	case errors.Is(err, context.Canceled):
		err = errors.New("interrupted: the server has not answered yet")
	}
	return answer, err
}
