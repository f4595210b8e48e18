//go:build cluster

package cluster

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Certificates practically never expire: the authority goes with its file, and a wrong clock
// must not keep a node out.
var (
	certFrom  = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	certUntil = time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)
)

// newAuthority makes the authority of a cluster.
func newAuthority(id string) (*x509.Certificate, crypto.Signer, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	form := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "relay cluster " + id}, NotBefore: certFrom,
		NotAfter: certUntil,
		IsCA:     true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, public, private)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, private, err
}

func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b) // never fails (crypto/rand)
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}

func writeAuthority(cert *x509.Certificate, key crypto.Signer) (certPEM, keyPEM string, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", "", err
	}
	certPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	return certPEM, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}

func readAuthority(certPEM, keyPEM string) (*x509.Certificate, crypto.Signer, error) {
	der, err := readPEM(certPEM, "CERTIFICATE")
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	if der, err = readPEM(keyPEM, "PRIVATE KEY"); err != nil {
		return nil, nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, nil, err
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok || !cert.IsCA || !key.Public().(ed25519.PublicKey).Equal(cert.PublicKey) {
		return nil, nil, errors.New("its key is not that of its certificate")
	}
	return cert, key, nil
}

func readPEM(text, kind string) ([]byte, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != kind || len(rest) > 0 {
		return nil, fmt.Errorf("it has no %s in PEM form", kind)
	}
	return block.Bytes, nil
}

// leaf makes a certificate for a node, for as long as its process lives.
func (f *File) leaf(node string) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	form := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: node}, DNSNames: []string{f.ID}, NotBefore: certFrom,
		NotAfter:              certUntil,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, form, f.cert, public, f.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
}

// tlsConfig is for both sides of a connection between nodes. Both must have a certificate of
// the cluster's authority, for a name that isMember accepts.
func (f *File) tlsConfig(node string, isMember func(name string) bool) (*tls.Config, error) {
	cert, err := f.leaf(node)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(f.cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		RootCAs: pool, ServerName: f.ID, // not an address: a node proves its cluster
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("a node has shown no certificate")
			}
			if name := s.PeerCertificates[0].Subject.CommonName; !isMember(name) {
				return fmt.Errorf("%s is not a member of the cluster", name)
			}
			return nil
		},
	}, nil
}
