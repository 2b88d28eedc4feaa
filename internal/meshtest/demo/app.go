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
	"net/http"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"sluice/internal/meshtest/netns"
	"sluice/internal/meshtest/podapp"
)

// answers is what the application of a server pod says over HTTP and gRPC.
type answers struct {
	name string
	pb.UnimplementedTestServiceServer
}

func startApp(ns *netns.Namespace, name string) (*podapp.App, error) {
	cert, err := ownCertificate()
	if err != nil {
		return nil, err
	}
	says := &answers{name: name}
	a := &podapp.App{Name: name, Handler: says, GRPC: grpc.NewServer(), Certificate: &cert}
	pb.RegisterTestServiceServer(a.GRPC, says)
	return a, a.Start(ns)
}

// ServeHTTP says who answers, and in which HTTP version.
func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s by %s, caller %s", a.name, r.Proto, r.Header.Get("X-Forwarded-Client-Cert"))
}

// UnaryCall answers with its name.
func (a *answers) UnaryCall(_ context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: r.GetPayload(), Hostname: a.name}, nil
}

// FullDuplexCall sends each message back.
func (a *answers) FullDuplexCall(s grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
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
