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
//	RELAY_URL                  where the relay is; default http://127.0.0.1:8080
//	RELAY_KEY                  the key
//	RELAY_KEY_FILE             a file with the key, instead
//	RELAY_SIGNING_SECRET       the secret, if the key was issued with one
//	RELAY_SIGNING_SECRET_FILE  a file with the secret, instead
//	RELAY_CA_FILE              a PEM file of certificates to trust in addition to the system's
func FromEnv() (*Client, error) {
	config := Config{URL: cmp.Or(os.Getenv("RELAY_URL"), DefaultURL)}
	var err error
	if config.Key, err = secretFromEnv("RELAY_KEY"); err != nil {
		return nil, err
	}
	if config.SigningSecret, err = secretFromEnv("RELAY_SIGNING_SECRET"); err != nil {
		return nil, err
	}
	if config.Key == "" {
		return nil, &ConfigError{"Key", "is missing: set RELAY_KEY or RELAY_KEY_FILE (relay key create ADDRESS issues one)"}
	}
	if file := os.Getenv("RELAY_CA_FILE"); file != "" {
		if config.TLS, err = TrustFile(file); err != nil {
			return nil, err
		}
	}
	return New(config)
}

// secretFromEnv reads the file that the variable NAME_FILE names, else the variable NAME.
func secretFromEnv(name string) (string, error) {
	text := []byte(os.Getenv(name))
	if file := os.Getenv(name + "_FILE"); file != "" {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return "", err
		}
	}
	return strings.TrimSpace(string(text)), nil
}

// ErrNoCertificate is the error of TrustFile for a file without certificates.
var ErrNoCertificate = errors.New("the file has no certificate in PEM")

// TrustFile makes a Config.TLS that trusts the certificates in a PEM file in addition to the system's.
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
