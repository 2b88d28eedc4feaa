// Package identity says who this proxy is: its key and certificate, signed by
// the mesh's CA and renewed in time, or taken from mounted files; the roots it
// trusts; and its node on xDS. It neither serves nor dials traffic: secrets go
// out as config values, and connections to the control plane are made by Peer.
// cmd/proxy runs it; xdsclient takes its secrets and its Peer.
package identity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// CreateCertificate is the full name of the CA's one method.
const CreateCertificate = "/istio.v1.auth.IstioCertificateService/CreateCertificate"

// Field numbers of istio.v1.auth's two messages.
const (
	fieldCSR      = 1
	fieldValidity = 3
	fieldMetadata = 4
	fieldChain    = 1
)

// Tries of one signing and the first wait between them, which doubles.
const (
	signTries = 5
	signWait  = 100 * time.Millisecond
)

// sign asks the CA to sign a certificate request (PEM). The answer is a chain in
// PEM, leaf first, root last.
func sign(ctx context.Context, cc *grpc.ClientConn, csr []byte, ttl time.Duration, signer string) ([]string, error) {
	request := raw(encodeRequest(csr, ttl, signer))
	wait := signWait
	for try := 1; ; try++ {
		var reply emptypb.Empty
		err := cc.Invoke(ctx, CreateCertificate, request, &reply)
		if err == nil {
			return decodeChain(reply.ProtoReflect().GetUnknown())
		}
		if try == signTries || !transient(err) {
			return nil, err
		}
		if !sleep(ctx, jitter(wait)) {
			return nil, ctx.Err()
		}
		wait *= 2
	}
}

// raw makes a message of wire bytes. The CA's messages have two fields each;
// generated code for them would pull in a second protobuf runtime.
func raw(b []byte) *emptypb.Empty {
	m := &emptypb.Empty{}
	m.ProtoReflect().SetUnknown(b)
	return m
}

func encodeRequest(csr []byte, ttl time.Duration, signer string) []byte {
	b := protowire.AppendTag(nil, fieldCSR, protowire.BytesType)
	b = protowire.AppendBytes(b, csr)
	b = protowire.AppendTag(b, fieldValidity, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(ttl/time.Second))
	if signer != "" {
		md, err := structpb.NewStruct(map[string]any{"CertSigner": signer})
		if err == nil {
			if body, err := proto.Marshal(md); err == nil {
				b = protowire.AppendTag(b, fieldMetadata, protowire.BytesType)
				b = protowire.AppendBytes(b, body)
			}
		}
	}
	return b
}

func decodeChain(b []byte) ([]string, error) {
	var out []string
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, fmt.Errorf("parsing the CA's answer: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if num != fieldChain || typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return nil, fmt.Errorf("parsing the CA's answer: %w", protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, fmt.Errorf("parsing the CA's answer: %w", protowire.ParseError(n))
		}
		out = append(out, string(v))
		b = b[n:]
	}
	if len(out) < 2 {
		return nil, fmt.Errorf("the CA's chain has %d certificates, want at least a leaf and a root", len(out))
	}
	return out, nil
}

func transient(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unavailable:
		return true
	}
	return false
}

// Explain puts an error of the control plane in an operator's words: "token
// rejected: ...", "connection refused: ADDRESS", "certificate of ... not trusted".
func Explain(err error, address string) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	code := status.Code(err)
	switch {
	case code == codes.Unauthenticated || code == codes.PermissionDenied:
		return "token rejected: " + text
	case strings.Contains(text, "x509:") || strings.Contains(text, "tls: failed to verify"):
		return "certificate of " + address + " not trusted: " + text
	case strings.Contains(text, "connection refused"):
		return "connection refused: " + address
	case errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded:
		return "no answer from " + address
	}
	return text
}
