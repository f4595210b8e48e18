package client

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"
)

// DefaultURL is where a relay is that was started without settings.
const DefaultURL = "http://127.0.0.1:8080"

// FromEnv makes a client as the environment says, like the commands of relay:
//
//	RELAY_URL             where the relay is; default http://127.0.0.1:8080
//	RELAY_KEY             the key
//	RELAY_KEY_FILE        a file with the key, instead
//	RELAY_SIGNING_SECRET  the secret, if the key was issued with one
//	RELAY_CA_FILE         a PEM file of certificates to trust beside the system's
func FromEnv() (*Client, error) {
	config := Config{
		URL:           cmp.Or(os.Getenv("RELAY_URL"), DefaultURL),
		Key:           strings.TrimSpace(os.Getenv("RELAY_KEY")),
		SigningSecret: strings.TrimSpace(os.Getenv("RELAY_SIGNING_SECRET")),
	}
	if file := os.Getenv("RELAY_KEY_FILE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		config.Key = strings.TrimSpace(string(text))
	}
	if config.Key == "" {
		return nil, &ConfigError{"Key", "is missing: set RELAY_KEY or RELAY_KEY_FILE (relay key create ADDRESS issues one)"}
	}
	if file := os.Getenv("RELAY_CA_FILE"); file != "" {
		var err error
		if config.TLS, err = TrustFile(file); err != nil {
			return nil, err
		}
	}
	return New(config)
}

// ErrNoCertificate is the error of TrustFile for a file without certificates.
var ErrNoCertificate = errors.New("the file has no certificate in PEM")

// TrustFile makes a Config.TLS that trusts the certificates in a PEM file beside the
// system's.
func TrustFile(file string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil { // this system has none
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, ErrNoCertificate
	}
	return &tls.Config{RootCAs: pool}, nil
}
