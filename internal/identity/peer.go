package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Windows, keep-alive and patience of connections, pilot-agent's. The keep-alive
// finds a peer that is gone without a word; istiod allows it, other servers by
// gRPC's default don't.
const (
	window           = 1 << 20
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
	dialTimeout      = 5 * time.Second
	maxBackoff       = 10 * time.Second
)

// Peer is an endpoint of the control plane, CA or xDS. Files are read at each
// connection (roots) and each call (token), for both are replaced in place.
type Peer struct {
	Address    string            // host:port
	ServerName string            // "" derives it from Address
	Plaintext  bool              // port 15010
	RootFile   string            // "SYSTEM" or "": the machine's roots
	TokenFile  string            // "": none
	Metadata   map[string]string // sent with each call
	// Certificate authenticates instead of a token when it gives one; may be nil.
	Certificate func() *tls.Certificate
}

// Dial makes a client connection. It doesn't wait for the server: the first call
// does.
func (p *Peer) Dial(context.Context) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if !p.Plaintext {
		t, err := p.tls()
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(t)
	}
	return Connect("tcp", p.Address, creds, grpc.WithPerRPCCredentials(perRPC{p}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}))
}

// Connect makes a client connection to an address of a network, "tcp" or "unix".
// It doesn't wait for it: the first call does.
func Connect(network, address string, creds credentials.TransportCredentials, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxBackoff}, MinConnectTimeout: dialTimeout}),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	}, more...)...)
}

func (p *Peer) tls() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: p.serverName()}
	if p.RootFile != "" && p.RootFile != "SYSTEM" {
		b, err := os.ReadFile(p.RootFile)
		if err != nil {
			return nil, fmt.Errorf("reading the control plane's root: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("reading the control plane's root: no certificate in %s", p.RootFile)
		}
	}
	if p.Certificate != nil {
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := p.Certificate(); c != nil {
				return c, nil
			}
			return &tls.Certificate{}, nil
		}
	}
	return out, nil
}

// serverName is the host part, or istiod's own name where that is an address of
// this machine's.
func (p *Peer) serverName() string {
	if p.ServerName != "" {
		return p.ServerName
	}
	host, _, err := net.SplitHostPort(p.Address)
	if err != nil {
		host = p.Address
	}
	if host == "localhost" || host == "127.0.0.1" || host == "::1" {
		return "istiod.istio-system.svc"
	}
	return host
}

// perRPC reads the token for every call: the kubelet replaces it.
type perRPC struct{ p *Peer }

// GetRequestMetadata gives the authorization header and the peer's own.
func (c perRPC) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	out := map[string]string{}
	for k, v := range c.p.Metadata {
		if v != "" {
			out[strings.ToLower(k)] = v
		}
	}
	if c.p.TokenFile == "" {
		return out, nil
	}
	b, err := os.ReadFile(c.p.TokenFile)
	if err != nil {
		if c.p.Certificate != nil && errors.Is(err, os.ErrNotExist) {
			return out, nil
		}
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	if t := strings.TrimSpace(string(b)); t != "" {
		out["authorization"] = "Bearer " + t
	}
	return out, nil
}

// RequireTransportSecurity refuses to send a token in the clear, except to the
// plaintext port that was asked for.
func (c perRPC) RequireTransportSecurity() bool { return !c.p.Plaintext }
