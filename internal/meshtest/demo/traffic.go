//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// client is an HTTP client of an application in the pod.
func (p *pod) client(http2 bool) *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		Protocols: protocols, DisableKeepAlives: !http2,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return p.Dial(ctx, address) },
	}}
}

func (p *pod) get(ctx context.Context, http2 bool, url, host, id string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	req.Host = host
	req.Header.Set("X-Demo", id)
	c := p.client(http2)
	defer c.CloseIdleConnections()
	res, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// traffic sends one of each kind and tells its way.
func (s *story) traffic(ctx context.Context) {
	s.say("\nTraffic from pod a to service b:")
	s.tell("HTTP/1.1 GET", serviceVIP+":80", "id=t-h1 ", s.httpOver(ctx, false, "t-h1"))
	s.tell("HTTP/2 GET", serviceVIP+":80", "id=t-h2 ", s.httpOver(ctx, true, "t-h2"))
	s.tell("gRPC unary", serviceVIP+":7070", "id=t-unary ", s.grpc(ctx, "t-unary", unary))
	s.tell("gRPC streaming, 100 messages both ways", serviceVIP+":7070", "id=t-stream ", s.grpc(ctx, "t-stream", streaming))
	s.tell("TCP echo", serviceVIP+":9000", "dialed="+serviceVIP+":9000", s.tcp(ctx, serviceVIP+":9000", "hello\n", "hello\n"))
	s.tell("TCP, server speaks first", serviceVIP+":9001", "dialed="+serviceVIP+":9001", s.tcp(ctx, serviceVIP+":9001", "", "220 b"))
	s.tell("the application's own TLS, passed through", serviceVIP+":9443", "dialed="+serviceVIP+":9443", s.ownTLS(ctx))
}

// tell prints the way that the access logs of both sidecars show.
func (s *story) tell(what, dialed, mark string, err error) {
	way := ""
	if err == nil {
		way, err = s.way(dialed, mark)
	}
	s.check(fmt.Sprintf("%s: %s", what, way), err)
}

// way reads pod a's log line with mark in it.
func (s *story) way(dialed, mark string) (string, error) {
	f, err := s.logged(s.pods["a"], mark)
	if err != nil {
		return "", err
	}
	const serverID = "spiffe://cluster.local/ns/demo/sa/b"
	if f["server"] != serverID {
		return "", fmt.Errorf("the peer's identity is %q, want %s", f["server"], serverID)
	}
	answer := "bytes back"
	if f["code"] != "0" && f["code"] != "-" {
		answer = f["code"]
	}
	return fmt.Sprintf("dialed %s → listener %s → chain %s → route %s → cluster %s → endpoint %s → peer %s → %s",
		dialed, f["listener"], f["chain"], f["route"], f["cluster"], f["endpoint"], f["server"], answer), nil
}

// logged waits for an access log line that holds mark and gives its fields.
func (s *story) logged(p *pod, mark string) (map[string]string, error) {
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		text, err := os.ReadFile(s.log(p))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "PATH ") && strings.Contains(line, mark) {
				return fields(line), nil
			}
		}
	}
	return nil, fmt.Errorf("no access log line of %s has %q", p.name, mark)
}

// fields splits "k=v k=v"; a value may hold blanks.
func fields(line string) map[string]string {
	f, key := map[string]string{}, ""
	for _, word := range strings.Fields(strings.TrimPrefix(line, "PATH ")) {
		if k, v, ok := strings.Cut(word, "="); ok && !strings.ContainsAny(k, ":/|.") {
			key = k
			f[key] = v
		} else {
			f[key] += " " + word
		}
	}
	return f
}

func (s *story) httpOver(ctx context.Context, http2 bool, id string) error {
	status, body, err := s.pods["a"].get(ctx, http2, "http://"+serviceVIP+"/", "b", id)
	switch {
	case err != nil:
		return err
	case status != 200:
		return fmt.Errorf("status %d: %s", status, body)
	case !strings.Contains(body, "URI=spiffe://cluster.local/ns/demo/sa/a"):
		return fmt.Errorf("b's application did not see a's identity: %s", body)
	}
	return nil
}

func unary(ctx context.Context, c pb.TestServiceClient) error {
	_, err := c.UnaryCall(ctx, &pb.SimpleRequest{})
	return err
}

func streaming(ctx context.Context, c pb.TestServiceClient) error {
	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	for i := range 100 {
		body := []byte(fmt.Sprint("message ", i))
		if err := s.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: body}}); err != nil {
			return err
		}
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if string(m.GetPayload().GetBody()) != string(body) {
			return fmt.Errorf("message %d came back as %q", i, m.GetPayload().GetBody())
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the stream ended with %v", err)
	}
	return nil
}

func (s *story) grpc(ctx context.Context, id string, call func(context.Context, pb.TestServiceClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cc, err := grpc.NewClient("passthrough:///"+serviceVIP+":7070", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("b:7070"),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return s.pods["a"].Dial(ctx, addr) }),
		grpc.WithUnaryInterceptor(func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
			return invoke(withID(ctx, id), m, req, reply, cc, o...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, m string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(withID(ctx, id), d, cc, m, o...)
		}))
	if err != nil {
		return err
	}
	defer cc.Close()
	return call(ctx, pb.NewTestServiceClient(cc))
}

func (s *story) tcp(ctx context.Context, address, send, want string) error {
	c, err := s.pods["a"].Dial(ctx, address)
	if err != nil {
		return err
	}
	defer c.Close()
	return converse(c, send, want)
}

func converse(c net.Conn, send, want string) error {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, send); err != nil {
		return err
	}
	got, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(got, want) {
		return fmt.Errorf("%q came back, want %q", got, want)
	}
	return nil
}

// ownTLS checks that the certificate which the client sees is the application's.
func (s *story) ownTLS(ctx context.Context) error {
	raw, err := s.pods["a"].Dial(ctx, serviceVIP+":9443")
	if err != nil {
		return err
	}
	defer raw.Close()
	c := tls.Client(raw, &tls.Config{ServerName: "app.example", InsecureSkipVerify: true}) //nolint:gosec // the name in it is what is checked
	if err := converse(c, "hello\n", "hello\n"); err != nil {
		return err
	}
	if got := c.ConnectionState().PeerCertificates[0].DNSNames; len(got) != 1 || got[0] != "app.example" {
		return fmt.Errorf("the server's certificate is for %v, want the application's", got)
	}
	return nil
}
