package call

import (
	"encoding/binary"
	"strconv"
	"time"

	"sluice/internal/httpmsg"
)

// gRPC status codes that a call itself gives.
const (
	Unknown           = 2
	DeadlineExceeded  = 4
	ResourceExhausted = 8
	Internal          = 13
	Unavailable       = 14
)

// Unary is the request of one unary gRPC call: method is "/package.Service/Method",
// message its encoded argument. An empty authority is the cluster's name, as
// Envoy has it.
func Unary(cluster, authority, method string, message []byte, timeout time.Duration) *Request {
	if authority == "" {
		authority = cluster
	}
	body := make([]byte, 5, 5+len(message)) // not compressed, then the length
	binary.BigEndian.PutUint32(body[1:], uint32(len(message)))
	return &Request{Cluster: cluster, Body: append(body, message...), Forwarded: true, Streamed: true, Timeout: timeout,
		Head: func(h *httpmsg.Head) {
			h.SetMethod([]byte("POST"))
			h.SetPath([]byte(method))
			h.SetScheme([]byte("http"))
			h.SetAuthority([]byte(authority))
			h.AddString(httpmsg.TE, "trailers")
			if timeout > 0 {
				h.AddString(httpmsg.GRPCTimeout, strconv.FormatInt(max(timeout.Milliseconds(), 1), 10)+"m")
			}
			h.AddString(httpmsg.ContentType, "application/grpc")
		}}
}

// Message gives the answer to Unary: its message, or a status that isn't 0 and
// what the service says of it (gRPC over HTTP/2, "Responses").
func (a *Answer) Message() (message []byte, status int, text string) {
	switch {
	case a.Late:
		return nil, DeadlineExceeded, ""
	case a.Head == nil:
		return nil, Unavailable, ""
	case a.Status != 200:
		return nil, ofHTTP(a.Status), ""
	}
	end := a.Trailers
	if end == nil {
		end = a.Head
	}
	code, ok := end.Value("grpc-status")
	n, err := strconv.Atoi(string(code))
	if !ok || err != nil || n < 0 {
		return nil, Unknown, ""
	}
	if n != 0 {
		said, _ := end.Value("grpc-message")
		return nil, n, string(said)
	}
	b := a.Body
	if len(b) < 5 || b[0] != 0 || uint64(binary.BigEndian.Uint32(b[1:])) != uint64(len(b)-5) {
		return nil, Internal, "the answer isn't one message"
	}
	return b[5:], 0, ""
}

// ofHTTP is the gRPC status of an HTTP status (gRPC, "HTTP to gRPC status code mapping").
func ofHTTP(status int) int {
	switch status {
	case 400:
		return Internal
	case 401:
		return 16 // UNAUTHENTICATED
	case 403:
		return 7 // PERMISSION_DENIED
	case 404:
		return 12 // UNIMPLEMENTED
	case 429, 502, 503, 504:
		return Unavailable
	}
	return Unknown
}
