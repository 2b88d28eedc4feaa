//go:build linux

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"sluice/internal/meshtest/netns"
)

// app is what runs in a server pod: HTTP on 8080, gRPC on 7070, an echo on 9000,
// a server that speaks first on 9001, and TLS of its own on 9443.
type app struct {
	name  string
	http  *http.Server
	grpc  *grpc.Server
	ports []net.Listener
	pb.UnimplementedTestServiceServer
}

func startApp(ns *netns.Namespace, name string) (*app, error) {
	cert, err := ownCertificate()
	if err != nil {
		return nil, err
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	a := &app{name: name, grpc: grpc.NewServer(), http: &http.Server{Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}}
	a.http.Handler = a
	pb.RegisterTestServiceServer(a.grpc, a)
	for port, serve := range map[string]func(net.Listener){
		"8080": func(l net.Listener) { _ = a.http.Serve(l) },
		"7070": func(l net.Listener) { _ = a.grpc.Serve(l) },
		"9000": func(l net.Listener) { speak(l, "") },
		"9001": func(l net.Listener) { speak(l, "220 "+name+" speaks first\n") },
		"9443": func(l net.Listener) {
			speak(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}}), "")
		},
	} {
		l, err := ns.Listen("0.0.0.0:" + port)
		if err != nil {
			a.stop()
			return nil, err
		}
		a.ports = append(a.ports, l)
		go serve(l) // ends when stop closes l
	}
	return a, nil
}

func (a *app) stop() {
	_ = a.http.Close()
	a.grpc.Stop()
	for _, l := range a.ports {
		l.Close()
	}
}

// ServeHTTP says who answers, in which HTTP version, after ?delay=.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d, err := time.ParseDuration(r.URL.Query().Get("delay")); err == nil {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	fmt.Fprintf(w, "%s by %s, caller %s", a.name, r.Proto, r.Header.Get("X-Forwarded-Client-Cert"))
}

// UnaryCall answers with its name.
func (a *app) UnaryCall(_ context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: r.GetPayload(), Hostname: a.name}, nil
}

// FullDuplexCall sends each message back.
func (a *app) FullDuplexCall(s grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.Send(&pb.StreamingOutputCallResponse{Payload: m.GetPayload()}); err != nil {
			return err
		}
	}
}

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

// ownCertificate is the application's, which the mesh neither knows nor opens.
func ownCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"app.example"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
