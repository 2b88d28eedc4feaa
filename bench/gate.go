package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"sluice/bench/machine"
	"sluice/bench/wire"
)

// heads are what a request and its answer looked like on the far side of a
// proxy, "name: value" each, with values that differ by design masked.
type heads struct{ Request, Response []string }

// mirror is the back end of the gate: it answers with the head that it got. It
// speaks HTTP/1.1 and HTTP/2, and ends with grpc-status 0 when it's asked as
// gRPC.
func mirror(ctx context.Context, listen string, out io.Writer) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	var clear http.Protocols
	clear.SetHTTP1(true)
	clear.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: &clear, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		list := fields(r.Header)
		list = append(list, "host: "+r.Host, "path: "+r.URL.RequestURI(), "method: "+r.Method)
		slices.Sort(list)
		text, _ := json.Marshal(list)
		if r.Header.Get("Content-Type") == "application/grpc" {
			w.Header().Set("Trailer", "Grpc-Status")
			w.Header().Set("Content-Type", "application/grpc")
			defer w.Header().Set("Grpc-Status", "0")
		} else {
			w.Header().Set("Content-Type", "text/plain")
		}
		w.Header().Set("X-Origin", "mirror")
		_, _ = w.Write(text)
	})}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	fmt.Fprintln(out, l.Addr())
	return s.Serve(l)
}

// masked are fields whose values are made anew each time.
var masked = []string{"x-request-id", "date", "x-envoy-upstream-service-time", "content-length"}

func fields(h http.Header) (list []string) {
	for name, values := range h {
		name = strings.ToLower(name)
		for _, v := range values {
			if slices.Contains(masked, name) {
				v = "*"
			}
			list = append(list, name+": "+v)
		}
	}
	slices.Sort(list)
	return list
}

// gates sends one request through sluice and Envoy in every HTTP scenario, and
// notes where what arrives, either way, isn't the same.
func (b *bench) gates(ctx context.Context, list []scenario, rec *record) error {
	seen := map[shape]bool{}
	for _, s := range list {
		if !s.shape.HTTP || seen[s.shape] || b.programs.envoy == "" || s.kind != underLoad {
			continue
		}
		seen[s.shape] = true
		ours, err := b.gate(ctx, s, sluice)
		if err != nil {
			rec.Facts.Gates = append(rec.Facts.Gates, fmt.Sprintf("%s: sluice FAILED: %v", s.name, err))
			continue
		}
		theirs, err := b.gate(ctx, s, envoy)
		if err != nil {
			rec.Facts.Gates = append(rec.Facts.Gates, fmt.Sprintf("%s: Envoy FAILED: %v", s.name, err))
			continue
		}
		verdict := fmt.Sprintf("%s: the same %d fields to the origin and %d to the client", s.name, len(ours.Request), len(ours.Response))
		if d := differences(ours, theirs); d != "" {
			verdict = s.name + ": " + d
		}
		rec.Facts.Gates = append(rec.Facts.Gates, verdict)
		fmt.Fprintln(os.Stderr, "gate:", verdict)
	}
	return ctx.Err()
}

func differences(ours, theirs heads) string {
	var parts []string
	add := func(what string, a, b []string) {
		for _, f := range a {
			if !slices.Contains(b, f) {
				parts = append(parts, fmt.Sprintf("%s `%s`", what, f))
			}
		}
	}
	add("only sluice sends the origin", ours.Request, theirs.Request)
	add("only Envoy sends the origin", theirs.Request, ours.Request)
	add("only sluice sends the client", ours.Response, theirs.Response)
	add("only Envoy sends the client", theirs.Response, ours.Response)
	return strings.Join(parts, "; ")
}

// gate sends one request through a contestant.
func (b *bench) gate(ctx context.Context, s scenario, name string) (h heads, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c := &cell{bench: b, ctx: ctx}
	defer c.close()
	if err := c.startServer("mirror", b.ports.origin); err != nil {
		return h, err
	}
	if _, _, err := c.startProxy(name, s.shape, ""); err != nil {
		return h, err
	}
	to := c.target(name, s.shape)
	if err := c.waitListening(b.net.Client, to); err != nil {
		return h, fmt.Errorf("%w %s", err, c.logOf(name))
	}
	return c.ask(s, to)
}

// client is an HTTP client whose connections start in the client's namespace.
func (c *cell) client(h2 bool) *http.Client {
	var clear http.Protocols
	clear.SetHTTP1(!h2)
	clear.SetUnencryptedHTTP2(h2)
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{Protocols: &clear, DisableCompression: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = machine.Within(c.net.Client, func() error {
				conn, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		}}}
}

func (c *cell) ask(s scenario, to netip.AddrPort) (h heads, err error) {
	client := c.client(s.shape.H2)
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(c.ctx, http.MethodGet, "http://"+to.String()+"/api/v1//items?id=42", nil)
	if err != nil {
		return h, err
	}
	if s.load.Kind == "grpc" || s.load.Kind == "stream" {
		r.Method, r.Body = http.MethodPost, io.NopCloser(bytes.NewReader(wire.Message(200)))
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("Te", "trailers")
	}
	r.Host = "svc.test"
	r.Header.Set("User-Agent", "bench/1")
	res, err := client.Do(r)
	if err != nil {
		return h, err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&h.Request); err != nil {
		return h, fmt.Errorf("status %d: %w", res.StatusCode, err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	h.Response = append(fields(res.Header), fmt.Sprintf("status: %d", res.StatusCode))
	h.Response = append(h.Response, fields(res.Trailer)...)
	return h, nil
}
