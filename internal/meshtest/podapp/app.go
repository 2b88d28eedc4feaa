//go:build linux

// Package podapp is the application of a test's pod: ports that a mesh has to tell
// apart. What HTTP and gRPC answer is the test's own.
package podapp

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"sluice/internal/meshtest/netns"
)

// App serves HTTP/1.1 and h2c on 8080, gRPC on 7070, TCP on 9000 (an echo) and 9001
// (it speaks first), and with a Certificate an echo in TLS of its own on 9443. Set
// the members, then Start it.
type App struct {
	Name        string
	Handler     http.Handler
	GRPC        *grpc.Server
	Certificate *tls.Certificate // nil: none

	http      *http.Server
	listeners []net.Listener
}

// Start opens the ports in a namespace. The error says which could not be.
func (a *App) Start(ns *netns.Namespace) error {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	a.http = &http.Server{Handler: delayed(a.Handler), Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
	ports := map[string]func(net.Listener){
		"8080": func(l net.Listener) { _ = a.http.Serve(l) },
		"7070": func(l net.Listener) { _ = a.GRPC.Serve(l) },
		"9000": func(l net.Listener) { speak(l, "") },
		"9001": func(l net.Listener) { speak(l, "220 "+a.Name+" speaks first\n") },
	}
	if c := a.Certificate; c != nil {
		ports["9443"] = func(l net.Listener) {
			speak(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*c}}), "")
		}
	}
	for port, serve := range ports {
		l, err := ns.Listen("0.0.0.0:" + port)
		if err != nil {
			a.Stop()
			return err
		}
		a.listeners = append(a.listeners, l)
		go serve(l) // ends when Stop closes l
	}
	return nil
}

// Stop closes the ports and ends what they serve.
func (a *App) Stop() {
	_ = a.http.Close()
	a.GRPC.Stop()
	for _, l := range a.listeners {
		l.Close()
	}
}

// delayed answers after ?delay=, unless the client leaves before.
func delayed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, err := time.ParseDuration(r.URL.Query().Get("delay")); err == nil {
			select {
			case <-time.After(d):
			case <-r.Context().Done():
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// speak greets, then echoes, until l is closed.
func speak(l net.Listener, greeting string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { // ends with its connection
			defer c.Close()
			_, _ = io.WriteString(c, greeting)
			_, _ = io.Copy(c, c)
		}()
	}
}
